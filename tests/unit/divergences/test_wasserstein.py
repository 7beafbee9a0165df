"""The 2-Wasserstein distance between processes, against SciPy's matrix roots and closed forms."""

from __future__ import annotations

import gpflow
import hypothesis.extra.numpy as st_numpy
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf
from hypothesis import given, settings

import gpflow_gvi as gvi
from gpflow_gvi.divergences import GaussianWasserstein
from gpflow_gvi.divergences.wasserstein import Landmark
from tests import catalogue, references
from tests.tolerances import ITERATIVE, assert_close

Array = np.ndarray
B = 6


def linear_mean(rng: np.random.Generator, J: int) -> gpflow.functions.MeanFunction:
    return gpflow.functions.Linear(rng.normal(size=(2, J)), rng.normal(size=J))


def regulariser(rng: np.random.Generator, J: int) -> gvi.GaussianProcess:
    kernels = [gpflow.kernels.Matern12(0.6 + 0.3 * j, 0.7 + 0.5 * j) for j in range(J)]
    kernel = gpflow.kernels.SeparateIndependent(kernels) if J > 1 else kernels[0]
    return gvi.GaussianProcess(linear_mean(rng, J), kernel)


def variational(rng: np.random.Generator, name: str, J: int) -> gvi.GaussianProcess:
    """Any covariance of the package, on a kernel that is not the regulariser's."""
    kernel = catalogue.kernels(J)["single" if J == 1 else "separate"]
    covariance = catalogue.COVARIANCES[name](kernel, rng.normal(size=(3, 2)))
    return gvi.GaussianProcess(linear_mean(rng, J), covariance)


def joint(process: gvi.GaussianProcess, X: Array) -> tuple[Array, Array]:
    """Mean and covariance of all outputs at all inputs as one vector of J·B independent blocks."""
    mean = process.mean(X).numpy().T.ravel()
    return mean, scipy.linalg.block_diag(*process.covariance(X).numpy())


@pytest.mark.parametrize(("name", "J"), catalogue.covariances_in_turn([2, 1]))
def test_exact_is_the_distance_of_the_joint_draws_over_their_number(rng, name, J):
    """Over inputs only: λ = 1/N in the objective leaves the unscaled squared distance."""
    q, p, X = variational(rng, name, J), regulariser(rng, J), rng.normal(size=(B, 2))
    expected = references.squared_wasserstein(*joint(q, X), *joint(p, X))
    value = GaussianWasserstein("exact")(q, p, X)
    assert_close(B * value, expected)
    assert_close(GaussianWasserstein()(p, q, X), value)


@pytest.mark.parametrize("name", ["CholeskySVGP", "SparsePosterior", "Tempered"])
def test_marginal_leaves_the_fidelity_out_and_is_an_upper_bound(rng, name):
    q, p, X = variational(rng, name, 2), regulariser(rng, 2), rng.normal(size=(B, 2))
    (q_mean, q_cov), (p_mean, p_cov) = joint(q, X), joint(p, X)
    expected = (np.sum((q_mean - p_mean) ** 2) + np.trace(q_cov) + np.trace(p_cov)) / B
    value = GaussianWasserstein("marginal")(q, p, X)
    assert_close(value, expected)
    assert GaussianWasserstein("exact")(q, p, X) < value


@pytest.mark.parametrize("estimator", ["", "Exact", "landmarks"])
def test_unknown_estimators_are_refused_with_the_known_ones(estimator):
    with pytest.raises(ValueError, match=rf"estimator is '{estimator}'.*'exact'.*'marginal'"):
        GaussianWasserstein(estimator)
    with pytest.raises(TypeError, match=r"estimator is <class .*Landmark'>; it must be"):
        GaussianWasserstein(Landmark)


@pytest.mark.parametrize(
    ("name", "points"), catalogue.covariances_in_turn(["distinct", "repeated", "many"])
)
def test_zero_between_a_process_and_itself(rng, name, points):
    """Up to the root of what rounding leaves of zero eigenvalues."""
    X = {
        "distinct": rng.normal(size=(B, 2)),
        "repeated": rng.normal(size=(3, 2))[[0, 1, 1, 2, 2, 2]],
        "many": np.linspace(-1.0, 1.0, 60)[:, None] * np.ones(2),
    }[points]
    q = variational(rng, name, 2)
    assert_close(GaussianWasserstein()(q, q, X), 0.0, ITERATIVE, scale=np.mean(q.variance(X)))


def test_zero_when_q_is_p_written_otherwise(rng):
    """With S the identity in whitened coordinates, the covariance puts back what it took away."""
    p = regulariser(rng, 2)
    covariance = gvi.covariances.CholeskySVGP(p.kernel, rng.normal(size=(3, 2)))
    q = gvi.GaussianProcess(p.mean_function, covariance)
    X = rng.normal(size=(B, 2))
    assert_close(GaussianWasserstein()(q, p, X), 0.0, ITERATIVE, scale=np.mean(p.variance(X)))


@pytest.mark.parametrize("factor", [0.25, 1.3, 9.0], ids=str)
def test_tempered_process_in_closed_form(rng, factor):
    """αK commutes with K: each standard deviation moves by the factor √α - 1."""
    p, X = regulariser(rng, 1), rng.normal(size=(B, 2))
    q = gvi.GaussianProcess(p.mean_function, gvi.covariances.Tempered(p.kernel, factor))
    expected = (np.sqrt(factor) - 1) ** 2 * np.mean(p.variance(X))
    assert_close(GaussianWasserstein()(q, p, X), expected)


def test_processes_of_low_rank_in_closed_form(rng):
    """f(x) = w x and f(x) = c: with one direction each, F is the cosine between the directions."""
    X = rng.normal(size=(B, 1))
    q = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.Linear(0.7))
    p = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.Constant(1.4))
    fidelity = np.sqrt(0.7 * 1.4) * abs(np.sum(X))
    expected = (0.7 * np.sum(X**2) + 1.4 * B - 2 * fidelity) / B
    for pair in ((q, p), (p, q)):
        assert_close(GaussianWasserstein()(*pair, X), expected, ITERATIVE)


@pytest.mark.parametrize("shared", ["p", "q"])
@pytest.mark.parametrize("estimator", ["exact", "marginal"])
def test_outputs_add_and_one_output_meets_each_of_several(rng, estimator, shared):
    kernels = [gpflow.kernels.Matern32(0.5), gpflow.kernels.Matern32(2.0, 0.4)]
    zero = gpflow.functions.Zero()
    several = gvi.GaussianProcess(zero, gpflow.kernels.SeparateIndependent(kernels))
    one, X = gvi.GaussianProcess(zero, gpflow.kernels.Matern12(0.8)), rng.normal(size=(B, 2))

    def distance(other: gvi.GaussianProcess) -> float:
        pair = (other, one) if shared == "p" else (one, other)
        return float(GaussianWasserstein(estimator)(*pair, X))

    expected = sum(distance(gvi.GaussianProcess(zero, kernel)) for kernel in kernels)
    assert_close(distance(several), expected)


def test_processes_with_different_numbers_of_outputs_are_refused(rng):
    with pytest.raises(ValueError, match="Q has 3 outputs and P has 2"):
        GaussianWasserstein()(regulariser(rng, 3), regulariser(rng, 2), rng.normal(size=(B, 2)))


def table(mean: Array, root: Array) -> gvi.GaussianProcess:
    """A process on the inputs 0, 1, ... with any mean and any covariance root·rootᵀ."""
    kernel = gpflow.kernels.Coregion(output_dim=len(root), rank=len(root))
    kernel.W.assign(root)
    kernel.kappa.assign(np.full(len(root), 1e-8))
    return gvi.GaussianProcess(lambda X: tf.constant(mean)[:, None], kernel)


HALVES = st.integers(-6, 6).map(lambda number: number / 2)
TABLES = st.builds(
    table,
    st_numpy.arrays(float, 3, elements=HALVES),
    st_numpy.arrays(float, (3, 3), elements=HALVES),
)


@settings(max_examples=8, deadline=None)
@given(a=TABLES, b=TABLES, c=TABLES)
def test_triangle_inequality(a, b, c):
    """Of the distance, not of its square; many of these covariances are singular."""
    X = np.arange(3.0)[:, None]
    ab, bc, ac = (np.sqrt(3 * GaussianWasserstein()(*pair, X)) for pair in ((a, b), (b, c), (a, c)))
    variances = sum(np.sum(process.variance(X)) for process in (a, b, c))
    assert ac <= ab + bc + np.sqrt(ITERATIVE.float64 * variances)


# --- gradients ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["exact", "marginal", "landmark"])
def test_gradient_in_all_parameters_against_finite_differences(rng, estimator):
    """Of Q's and of P's, so that both arguments of the fidelity are tried."""
    q, p, X = variational(rng, "KernelisedSVGP", 2), regulariser(rng, 2), rng.normal(size=(B, 2))
    divergence = GaussianWasserstein(estimator)
    variables = [*q.trainable_variables, *p.trainable_variables]

    @tf.function(autograph=False)
    def evaluate() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            value = divergence(q, p, X)
        # The marginal estimate does not depend on P's lengthscales.
        unconnected = tf.UnconnectedGradients.ZERO
        return value, tape.gradient(value, variables, unconnected_gradients=unconnected)

    h = 1e-5
    for variable, gradient in zip(variables, evaluate()[1], strict=True):
        start = variable.numpy()
        numerical = np.zeros_like(start)
        for index in np.ndindex(start.shape):
            step = np.zeros_like(start)
            step[index] = h
            sides = []
            for moved in (start + step, start - step):
                variable.assign(moved)
                sides.append(float(evaluate()[0]))
            numerical[index] = (sides[0] - sides[1]) / (2 * h)
        variable.assign(start)
        assert_close(gradient, numerical, ITERATIVE)


@pytest.mark.parametrize(
    ("name", "points"), catalogue.covariances_in_turn(["distinct", "repeated"])
)
def test_float32_and_singular_covariances(name, points):
    """Gradients are finite, and both precisions agree as far as singular matrices allow."""

    def evaluate() -> float:
        rng = np.random.default_rng(3)
        q, p = variational(rng, name, 2), regulariser(rng, 2)
        X = rng.normal(size=(B, 2)).astype(gpflow.default_float())
        X = X if points == "distinct" else X[[0, 1, 1, 2, 2, 2]]
        with tf.GradientTape() as tape:
            value = GaussianWasserstein()(q, p, X)
        assert value.dtype == gpflow.default_float()
        for gradient in tape.gradient(value, q.trainable_variables):
            assert np.all(np.isfinite(gradient))
        return float(value)

    precise = evaluate()
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        single = evaluate()
    assert_close(single, precise, ITERATIVE, precision=np.float32)

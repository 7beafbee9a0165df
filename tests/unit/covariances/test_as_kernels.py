"""Covariances used as the GPflow kernels they are: called, added, copied, differentiated."""

from __future__ import annotations

import copy
import functools

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.inducing_variables import (
    InducingPoints,
    Multiscale,
    SeparateIndependentInducingVariables,
)

import gpflow_gvi as gvi
from gpflow_gvi._core import outputs
from tests import catalogue
from tests.designs import each_pair, each_value
from tests.features import CircleArcCosine, Heaviside
from tests.tolerances import ITERATIVE, ROUNDING, assert_close, assert_differ

OWN_KERNEL = ("KernelisedSVGP", "SparsePosterior", "FixedSparsePosterior")
"""The covariances that learn a kernel r_0 of their own."""

Z = [np.array([[-2.1], [-0.9], [0.1], [1.2], [2.3]]) + shift for shift in (0.0, 0.1, -0.2)]

# How many outputs, which kernel, which inducing variable.
INGREDIENTS = {
    "points": (1, "single", lambda: InducingPoints(Z[0])),
    "multiscale": (1, "single", lambda: Multiscale(Z[0], scales=np.full_like(Z[0], 0.3))),
    "heaviside": (1, "circle", lambda: Heaviside(np.array([-2.2, -1.1, 0.2, 0.45]))),
    "J=3, single": (3, "single", lambda: InducingPoints(Z[0])),
    "J=3, shared": (3, "shared", lambda: InducingPoints(Z[0])),
    "J=3, separate": (3, "separate", lambda: InducingPoints(Z[0])),
    "J=3, separate points": (
        3,
        "single",
        lambda: SeparateIndependentInducingVariables([InducingPoints(z) for z in Z]),
    ),
    "J=3, all separate": (
        3,
        "separate",
        lambda: SeparateIndependentInducingVariables([InducingPoints(z) for z in Z]),
    ),
}
SOME = ("points", "heaviside", "J=3, all separate")
FEW = ("points", "J=3, separate")

# AutoGraph is slow, and nothing here needs it.
graph = functools.partial(tf.function, autograph=False)

every_covariance = pytest.mark.parametrize("name", catalogue.COVARIANCES)
some_ingredients = pytest.mark.parametrize("ingredients", SOME)


def covariances_in_turn(ingredients: tuple[str, ...]) -> pytest.MarkDecorator:
    """Every covariance, each with the next of the ingredients: they know nothing of each other."""
    cases = catalogue.covariances_in_turn(ingredients)
    return pytest.mark.parametrize(("name", "ingredients"), cases)


def build(name: str, ingredients: str) -> tuple[gpflow.kernels.Kernel, gvi.covariances.Covariance]:
    """The regulariser's kernel k, and the covariance on it with a Σ other than the start."""
    J, kind, inducing_variable = INGREDIENTS[ingredients]
    k = CircleArcCosine(0.8) if kind == "circle" else catalogue.kernels(J)[kind]
    covariance = catalogue.COVARIANCES[name](k, inducing_variable(), num_latent_gps=J)
    rng = np.random.default_rng(3)
    for path, parameter in gpflow.utilities.parameter_dict(covariance).items():
        if path.endswith("q_sqrt"):
            parameter.assign(np.tril(rng.normal(size=parameter.shape)))
        elif path.endswith(".v"):
            parameter.assign(rng.gamma(1.0, size=parameter.shape))
    return k, covariance


@pytest.fixture(name="X")
def _inputs(rng) -> np.ndarray:
    return rng.uniform(-3.0, 3.0, size=(6, 1))


@pytest.fixture(name="X2")
def _other_inputs(rng) -> np.ndarray:
    return rng.uniform(-3.0, 3.0, size=(4, 1))


def flat(K: tf.Tensor) -> np.ndarray:
    """[N, J, N2, J] to [N·J, N2·J], and [N, N2] as it is."""
    K = np.asarray(K)
    return K if K.ndim == 2 else K.reshape(K.shape[0] * K.shape[1], -1)


@pytest.mark.parametrize(("name", "ingredients"), each_value(catalogue.COVARIANCES, INGREDIENTS))
def test_is_one_positive_semi_definite_function(name, ingredients, X, X2):
    """K(X), K(X, X) and K_diag(X) agree, and blocks are those of all inputs at once."""
    J = INGREDIENTS[ingredients][0]
    _, r = build(name, ingredients)
    whole = flat(r(np.concatenate([X, X2])))
    n = len(X) * J
    assert_close(flat(r(X)), whole[:n, :n])
    assert_close(flat(r(X, X)), whole[:n, :n])
    assert_close(flat(r(X, X2)), whole[:n, n:])
    assert_close(np.asarray(r.K_diag(X, full_output_cov=False)).ravel(), np.diag(whole)[:n])
    assert_close(whole, whole.T)
    assert np.linalg.eigvalsh(whole).min() >= -ROUNDING.float64 * np.trace(whole)


@covariances_in_turn(SOME)
def test_adds_and_multiplies(name, ingredients, X, X2):
    J = INGREDIENTS[ingredients][0]
    _, r = build(name, ingredients)
    other = gpflow.kernels.Matern32(0.6)
    if J > 1:
        other = gpflow.kernels.SharedIndependent(other, J)
    scalar = gpflow.kernels.Matern32(0.6)(X, X2).numpy()
    each = r.output_covariance(X, X2).numpy()
    for combined, expected in ((r + other, each + scalar), (other * r, each * scalar)):
        assert_close(outputs.covariance(combined, X, X2), expected)
        diagonal = np.einsum("jnn->nj", outputs.covariance(combined, X))
        assert_close(outputs.variance(combined, X), diagonal)
        if J == 1:  # GPflow's own way of calling a combination
            assert_close(combined(X, X2), expected[0])
            assert_close(combined(X, full_cov=False), diagonal[:, 0])


@covariances_in_turn(("points", "multiscale", "heaviside"))
def test_is_a_prior_for_gpflow_s_gpr(name, ingredients, X, X2):
    _, r = build(name, ingredients)
    Y, kernel = np.sin(X), r + gpflow.kernels.Constant(0.5)
    gpr = gpflow.models.GPR((X, Y), kernel, noise_variance=0.1)
    mean, covariance = gpr.predict_f(X2, full_cov=True)
    whole = r(np.concatenate([X, X2])).numpy() + 0.5
    n = len(X)
    gain = np.linalg.solve(whole[:n, :n] + 0.1 * np.eye(n), whole[:n, n:]).T
    assert_close(mean, gain @ Y)
    assert_close(covariance[0], whole[n:, n:] - gain @ whole[:n, n:])


def shapes_with_two(N: int, function: tf.types.experimental.GenericFunction) -> list[str]:
    """The operations of a graph on N inputs of which a result has N entries in two dimensions."""
    concrete = function.get_concrete_function(tf.TensorSpec([N, 1], tf.float64))
    return [
        op.name
        for op in concrete.graph.get_operations()
        for result in op.outputs
        if result.shape.rank is not None and result.shape.as_list().count(N) > 1
    ]


@covariances_in_turn(FEW)
def test_the_diagonal_costs_no_square_of_the_number_of_inputs(name, ingredients):
    N = 20011  # a prime, so that no other dimension looks like it
    _, r = build(name, ingredients)
    diagonal = graph(lambda X: r.K_diag(X, full_output_cov=False))
    assert shapes_with_two(N, diagonal) == []
    assert shapes_with_two(N, graph(lambda X: r.K(X, full_output_cov=False)))
    X = np.linspace(-3.0, 3.0, N)[:, None]
    some = [0, 1234, N - 1]
    assert_close(diagonal(X).numpy()[some], r.K_diag(X[some], full_output_cov=False))


@pytest.mark.parametrize(
    ("kind", "full_output_cov", "full_cov"),
    each_pair(["shared", "separate"], [False, True], [False, True]),
)
def test_is_called_as_gpflow_s_multi_output_kernels_are(kind, full_cov, full_output_cov, X, X2):
    """With S = I for L⁻¹u, r is k itself, whose calls set the convention."""
    k = catalogue.kernels(3)[kind]
    r = gvi.covariances.CholeskySVGP(k, Z[0])
    how = {"full_cov": full_cov, "full_output_cov": full_output_cov}
    for other in (None, X2) if full_cov else (None,):
        assert r(X, other, **how).shape == k(X, other, **how).shape
        assert_close(r(X, other, **how), k(X, other, **how))


def test_the_diagonal_of_two_sets_of_inputs_is_refused(X, X2):
    for ingredients in FEW:
        with pytest.raises(ValueError, match="X2 was given with full_cov=False"):
            build("CholeskySVGP", ingredients)[1](X, X2, full_cov=False)


@covariances_in_turn(SOME)
def test_copies_are_equal_and_independent(name, ingredients, X):
    _, r = build(name, ingredients)
    before = r(X).numpy()
    twin = copy.deepcopy(r)
    np.testing.assert_array_equal(twin(X), before)
    for variable in twin.trainable_variables:
        variable.assign_add(0.1 * tf.ones_like(variable))
    assert_differ(twin(X), before)
    np.testing.assert_array_equal(r(X), before)
    # Values travel between the two by the names of the parameters.
    gpflow.utilities.multiple_assign(
        r, {path: p.numpy() for path, p in gpflow.utilities.parameter_dict(twin).items()}
    )
    assert_close(r(X), twin(X))


@every_covariance
@some_ingredients
def test_trains_what_is_its_own_and_not_the_regulariser_s_kernel(name, ingredients):
    k, r = build(name, ingredients)
    trained = {variable.ref() for variable in r.trainable_variables}
    assert trained
    assert not trained & {variable.ref() for variable in k.trainable_variables}
    if name in OWN_KERNEL:
        own = {variable.ref() for variable in r.base_kernel.trainable_variables}
        assert own <= trained
        assert len(own) == len(k.trainable_variables)
        # The frozen factor would not follow inducing variables that move.
        assert (own == trained) == (name == "FixedSparsePosterior")
    if name == "Tempered":
        assert r.factor.unconstrained_variable.ref() in trained


def test_a_frozen_factor_leaves_the_given_inducing_variable_free():
    """Another part of Q may share the object, and must still be able to move it."""
    given = InducingPoints(Z[0])
    fixed = gvi.covariances.FixedSparsePosterior(catalogue.kernels(1)["single"], given)
    assert len(given.trainable_variables) == 1
    before = fixed(Z[1]).numpy()
    given.Z.assign_add(np.ones_like(Z[0]))
    np.testing.assert_array_equal(fixed(Z[1]), before)


@covariances_in_turn(("heaviside", "J=3, all separate"))
def test_gradients_are_those_of_finite_differences(name, ingredients, X):
    """Along one random direction through all trained variables at once."""
    _, r = build(name, ingredients)
    rng = np.random.default_rng(7)
    variables = r.trainable_variables
    directions = [rng.normal(size=variable.shape) for variable in variables]
    of_diagonal = rng.normal(size=r.K_diag(X, full_output_cov=False).shape)
    of_whole = rng.normal(size=r(X, full_output_cov=False).shape)

    def value() -> tf.Tensor:
        diagonal = tf.reduce_sum(of_diagonal * r.K_diag(X, full_output_cov=False))
        return diagonal + tf.reduce_sum(of_whole * r.K(X, full_output_cov=False))

    def moved(step: float) -> float:
        for variable, direction in zip(variables, directions, strict=True):
            variable.assign_add(step * direction)
        return float(value())

    with tf.GradientTape() as tape:
        here = value()
    gradients = tape.gradient(here, variables)
    slope = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    h = 1e-5
    ahead, behind = moved(h), moved(-2 * h)
    assert_close(slope, (ahead - behind) / (2 * h), ITERATIVE)


@covariances_in_turn(FEW)
def test_single_precision_agrees_with_double(name, ingredients, X):
    values = {}
    for dtype in (np.float64, np.float32):
        with gpflow.config.as_context(gpflow.config.Config(float=dtype, jitter=1e-4)):
            J, kind, _ = INGREDIENTS[ingredients]
            k = catalogue.kernels(J)[kind]
            r = catalogue.COVARIANCES[name](k, Z[0].astype(dtype), num_latent_gps=J)
            X_in = X.astype(dtype)
            for value in (r.K(X_in), r.K_diag(X_in)):
                assert value.dtype == dtype
            values[dtype] = r.K(X_in).numpy()
    assert_close(values[np.float32], values[np.float64])


@covariances_in_turn(FEW)
def test_batches_of_inputs_are_refused(name, ingredients):
    _, r = build(name, ingredients)
    with pytest.raises(ValueError, match=r"X has shape \(2, 3, 1\); it must be \[N, D\]"):
        r(np.zeros((2, 3, 1)))

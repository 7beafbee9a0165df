"""Gaussian processes before and after conditioning, against kernels, numpy and GPflow's GPR."""

from __future__ import annotations

import gpflow
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Constant, Linear, Zero
from gpflow.kernels import LinearCoregionalization, Matern32, Periodic, SquaredExponential

import gpflow_gvi as gvi
from tests import catalogue
from tests.designs import each_value
from tests.tolerances import ROUNDING, assert_close, assert_differ, assert_estimates

J, D = 3, 2


def mixed() -> LinearCoregionalization:
    W = np.array([[1.0, 0.2], [-0.5, 0.8], [0.3, -1.1]])
    latent = [SquaredExponential(variance=0.9, lengthscales=1.2), Matern32(lengthscales=0.7)]
    return LinearCoregionalization(latent, W=W)


def sloped(J: int) -> Linear:
    return Linear(A=np.linspace(-1.0, 1.0, D * J).reshape(D, J), b=np.linspace(4.0, 6.0, J))


KERNELS = {
    **catalogue.kernels(J),
    "mixed": mixed(),
    "sum": catalogue.kernels(J)["separate"] + Matern32(),
    "product": catalogue.kernels(J)["separate"] * catalogue.kernels(J)["shared"],
    "mixed + noise": mixed() + Matern32(variance=0.4),
}


def dense(kernel: gpflow.kernels.Kernel, X: np.ndarray, X2: np.ndarray) -> np.ndarray:
    """The covariance of all outputs at all inputs, [N·J, N2·J], written with GPflow alone."""
    if isinstance(kernel, gpflow.kernels.Sum):
        return sum(dense(part, X, X2) for part in kernel.kernels)
    if isinstance(kernel, gpflow.kernels.Product):
        return np.prod([dense(part, X, X2) for part in kernel.kernels], axis=0)
    if not isinstance(kernel, gpflow.kernels.MultioutputKernel):
        return np.kron(kernel(X, X2), np.eye(J))
    return kernel(X, X2, full_cov=True).numpy().reshape(len(X) * J, len(X2) * J)


def of_each_output(joint: np.ndarray) -> np.ndarray:
    """[N·J, N2·J] to [J, N, N2]."""
    N, N2 = (size // J for size in joint.shape)
    return np.einsum("njmj->jnm", joint.reshape(N, J, N2, J))


@pytest.fixture(name="X")
def _inputs(rng) -> np.ndarray:
    return rng.normal(size=(5, D))


@pytest.fixture
def data(rng) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(6, D)), 5.0 + rng.normal(size=(6, J))


@pytest.mark.parametrize("kind", KERNELS)
def test_marginals_and_covariances_are_the_kernel_s(kind, X, rng):
    kernel, mean, X2 = KERNELS[kind], sloped(J), rng.normal(size=(4, D))
    process = gvi.GaussianProcess(mean, kernel)
    assert_close(process.mean(X), mean(X))
    covariance = of_each_output(dense(kernel, X, X))
    assert_close(process.covariance(X), covariance)
    assert_close(process.variance(X), np.einsum("jnn->nj", covariance))
    cross = of_each_output(dense(kernel, X, X2))
    assert_close(process.covariance(X, X2), cross)


@pytest.mark.parametrize(("kind", "noise"), each_value(KERNELS, [0.3, [0.05, 0.4, 2.0]]))
def test_conditioning_is_conditioning_of_the_joint_gaussian(kind, noise, X, data, rng):
    kernel, mean, (Z, U), X2 = KERNELS[kind], sloped(J), data, rng.normal(size=(4, D))
    posterior = gvi.GaussianProcess(mean, kernel).condition(Z, U, np.array(noise))

    Kzz = dense(kernel, Z, Z) + np.kron(np.eye(len(Z)), np.diag(np.broadcast_to(noise, J)))
    gain = np.linalg.solve(Kzz, dense(kernel, Z, X)).T
    expected_mean = mean(X).numpy() + (gain @ (U - mean(Z).numpy()).ravel()).reshape(-1, J)
    joint = dense(kernel, X, X) - gain @ dense(kernel, Z, X)
    cross = dense(kernel, X, X2) - gain @ dense(kernel, Z, X2)

    assert_close(posterior.mean(X), expected_mean)
    assert_close(posterior.covariance(X), of_each_output(joint))
    assert_close(posterior.covariance(X, X2), of_each_output(cross))
    assert_close(posterior.variance(X).numpy().ravel(), np.diag(joint))
    _, full = posterior.predict(X, full_cov=True, full_output_cov=True)
    assert_close(full.numpy().reshape(joint.shape), joint)


def test_conditioning_is_gpflow_s_gpr(rng):
    Z, U, X = rng.normal(size=(8, D)), rng.normal(size=(8, 2)), rng.normal(size=(5, D))
    kernel, mean = SquaredExponential(lengthscales=[0.7, 1.4]) + Matern32(), Constant(5.0)
    gpr = gpflow.models.GPR((Z, U), kernel, mean_function=mean, noise_variance=0.2)
    posterior = gvi.GaussianProcess(mean, kernel).condition(Z, U, 0.2)
    for full_cov in (False, True):
        for ours, theirs in zip(
            posterior.predict(X, full_cov=full_cov), gpr.predict_f(X, full_cov), strict=True
        ):
            assert_close(ours, theirs)


def test_a_mean_of_five_and_data_of_five_predict_five(X, data):
    process = gvi.GaussianProcess(Constant(np.full(J, 5.0)), SquaredExponential())
    posterior = process.condition(data[0], np.full((6, J), 5.0), 0.1)
    assert_close(posterior.mean(10.0 * X), 5.0)


# The outputs of a mixture of two processes alone cannot take three free values.
@pytest.mark.parametrize("kind", sorted(KERNELS.keys() - {"mixed"}))
def test_without_noise_the_data_are_interpolated(kind, data):
    Z, U = data
    posterior = gvi.GaussianProcess(sloped(J), KERNELS[kind]).condition(Z, U, 0.0)
    assert_close(posterior.mean(Z), U)
    assert_close(posterior.variance(Z), 0.0, scale=1.0)


@pytest.mark.parametrize(
    "kind", ["single", pytest.param("separate", marks=pytest.mark.slow), "mixed"]
)
def test_the_posterior_is_a_prior_again(kind, X, data):
    """Conditioning on one half and then on the other is conditioning on both."""
    (Z, U), prior = data, gvi.GaussianProcess(sloped(J), KERNELS[kind])
    once = prior.condition(Z, U, 0.2)
    twice = prior.condition(Z[:2], U[:2], 0.2).condition(Z[2:], U[2:], 0.2)
    assert_close(twice.mean(X), once.mean(X))
    assert_close(twice.covariance(X), once.covariance(X))
    assert_close(twice.variance(X), once.variance(X))


def test_a_conditioned_kernel_enters_gpflow_s_models(X, data):
    """Posterior mean and kernel as GPR's prior: GPR on the rest of the data is GPR on all."""
    (Z, U), kernel = data, SquaredExponential()
    first = gvi.GaussianProcess(Constant(5.0), kernel).condition(Z[:3], U[:3, :1], 0.2)
    rest = (Z[3:], U[3:, :1])
    in_turn = gpflow.models.GPR(rest, first.kernel, first.mean_function, noise_variance=0.2)
    at_once = gpflow.models.GPR((Z, U[:, :1]), kernel, Constant(5.0), noise_variance=0.2)
    for ours, theirs in zip(in_turn.predict_f(X, True), at_once.predict_f(X, True), strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize(("kind", "conditioned"), each_value(KERNELS, [False, True]))
def test_predict_gives_parts_of_one_joint_covariance(kind, conditioned, X, data):
    process = gvi.GaussianProcess(sloped(J), KERNELS[kind])
    if conditioned:
        process = process.condition(*data, np.array([0.1, 0.2, 0.3]))
    mean, full = process.predict(X, full_cov=True, full_output_cov=True)
    parts = {(False, False): "njnj->nj", (True, False): "njmj->jnm", (False, True): "njni->nji"}
    for (full_cov, full_output_cov), part in parts.items():
        other_mean, covariance = process.predict(X, full_cov, full_output_cov)
        assert_close(other_mean, mean)
        assert_close(covariance, np.einsum(part, full))


@pytest.mark.parametrize(("kind", "full_cov"), [("separate", True), ("mixed", False)])
def test_predict_treats_each_member_of_a_batch_alone(kind, full_cov, data, rng):
    process = gvi.GaussianProcess(sloped(J), KERNELS[kind]).condition(*data, 0.1)
    X = rng.normal(size=(2, 1, 4, D))
    batch = process.predict(X, full_cov, full_output_cov=True)
    for member in np.ndindex(2, 1):
        alone = process.predict(X[member], full_cov, full_output_cov=True)
        for of_batch, expected in zip(batch, alone, strict=True):
            assert_close(of_batch[member], expected)


# GPflow itself cannot give all outputs at once for a batch.
@pytest.mark.parametrize(
    ("kind", "batch", "full_output_cov", "full_cov"),
    [
        ("separate", (), False, True),
        ("separate", (), True, False),
        ("separate", (), True, True),
        ("single", (2,), False, True),
    ],
)
@tf.autograph.experimental.do_not_convert  # of what GPflow maps over outputs
def test_predict_has_gpflow_s_shapes_and_values(kind, batch, full_cov, full_output_cov, rng):
    """An SVGP at its prior is the prior, and its predict_f sets the convention."""
    kernel, X = KERNELS[kind], rng.normal(size=(*batch, 4, D))
    Z = gpflow.inducing_variables.InducingPoints(rng.normal(size=(2, D)))
    if kind == "separate":
        Z = gpflow.inducing_variables.SharedIndependentInducingVariables(Z)
    svgp = gpflow.models.SVGP(
        kernel, gpflow.likelihoods.Gaussian(), Z, mean_function=sloped(J), num_latent_gps=J
    )
    ours = gvi.GaussianProcess(sloped(J), kernel).predict(X, full_cov, full_output_cov)
    for mine, theirs in zip(ours, svgp.predict_f(X, full_cov, full_output_cov), strict=True):
        assert mine.shape == theirs.shape
        assert_close(mine, theirs)


@pytest.mark.parametrize("kind", ["shared", "separate", "mixed"])
def test_samples_have_the_moments_of_all_outputs_at_all_inputs(kind, data, X):
    process, S = gvi.GaussianProcess(sloped(J), KERNELS[kind]).condition(*data, 0.1), 20_000
    samples = np.reshape(process.sample(X, S, seed=3), [S, -1])
    mean, covariance = process.predict(X, full_cov=True, full_output_cov=True)
    expected = np.reshape(covariance, [len(X) * J, -1])
    variance = np.diag(expected)
    assert_estimates(samples.mean(axis=0), np.ravel(mean), np.sqrt(variance / S))
    # Var of a product of two centred Gaussians is v₁v₂ + c².
    error = np.sqrt((np.outer(variance, variance) + expected**2) / S)
    assert_estimates(np.cov(samples.T), expected, error)


def test_one_kernel_or_one_mean_is_shared_by_all_outputs(X, data):
    one_kernel = gvi.GaussianProcess(sloped(J), SquaredExponential(0.7))
    assert_close(one_kernel.variance(X), np.full((5, J), 0.7))
    one_mean = gvi.GaussianProcess(sloped(1), KERNELS["separate"])
    assert_close(one_mean.mean(X), np.tile(sloped(1)(X), J))
    for process in (one_kernel, one_mean):
        assert process.covariance(X).shape == process.covariance(X, X).shape == (J, 5, 5)
        posterior = process.condition(*data, 0.1)
        assert posterior.mean(X).shape == posterior.variance(X).shape == (5, J)


WRONG = {
    "mean function": (TypeError, "mean_function is 3.0", lambda: gvi.GaussianProcess(3.0, mixed())),
    "class of a mean function": (
        TypeError,
        "mean_function is <class .*Zero'>; it must be a gpflow.functions.MeanFunction",
        lambda: gvi.GaussianProcess(gpflow.functions.Zero, mixed()),
    ),
    "kernel": (TypeError, "kernel is 'SE'", lambda: gvi.GaussianProcess(Zero(), "SE")),
    "J of mean and kernel": (
        ValueError,
        "mean_function has 2 outputs and kernel has 3",
        lambda: gvi.GaussianProcess(sloped(2), KERNELS["shared"]).mean(np.zeros((4, D))),
    ),
    "J of U": (ValueError, "U has 2 columns, but the kernel has 3", {"U": np.zeros((6, 2))}),
    "dtype of U": (TypeError, "U has dtype complex128", {"U": np.zeros((6, J), complex)}),
    "text in Z": (TypeError, "Z has dtype <U1", {"Z": np.full((6, D), "a")}),
    "NaN in Z": (ValueError, "Z has NaN", {"Z": np.full((6, D), np.nan)}),
    "infinite U": (ValueError, "U has NaN or infinite", {"U": np.full((6, J), np.inf)}),
    "lengths": (ValueError, "Z has 5 rows and U has 6", {"Z": np.zeros((5, D))}),
    "no data": (ValueError, "no data points", {"Z": np.zeros((0, D)), "U": np.zeros((0, J))}),
    "flat U": (ValueError, "U has 1 columns, but the kernel has 3", {"U": np.zeros(6)}),
    "negative noise": (ValueError, "noise_variance is -0.1", {"noise_variance": -0.1}),
    "noise of 2 outputs": (
        ValueError,
        r"noise_variance has shape \(2,\)",
        {"noise_variance": [1, 1]},
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_named(case):
    error, message, arguments = WRONG[case]
    if callable(arguments):
        with pytest.raises(error, match=message):
            arguments()
        return
    right = {"Z": np.zeros((6, D)), "U": np.zeros((6, J)), "noise_variance": 0.1}
    process = gvi.GaussianProcess(Zero(), KERNELS["separate"])
    with pytest.raises(error, match=message):
        process.condition(**{**right, **arguments})


@pytest.mark.parametrize("columns", [1, 2])
def test_observations_have_the_columns_of_the_mean(columns):
    process = gvi.GaussianProcess(sloped(3), SquaredExponential())
    with pytest.raises(ValueError, match=rf"U has {columns} columns, .* 3 outputs. Give U 3"):
        process.condition(np.zeros((6, D)), np.zeros((6, columns)), 0.1)


@pytest.mark.slow
@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(sorted(KERNELS)),
    log_noise=st.floats(-8, 4),
    scale=st.floats(0.01, 10),
)
def test_conditioning_never_adds_variance_and_stays_positive(seed, kind, log_noise, scale):
    rng = np.random.default_rng(seed)
    Z, U, X = (rng.normal(size=(n, d)) * scale for n, d in ((4, D), (4, J), (6, D)))
    prior = gvi.GaussianProcess(sloped(J), KERNELS[kind])
    posterior = prior.condition(Z, U, np.exp(log_noise))
    _, before = prior.predict(X, True, True)
    _, after = posterior.predict(X, True, True)
    before, after = (np.reshape(full, (6 * J, 6 * J)) for full in (before, after))
    # Not only each variance: the variance of every combination of the values falls.
    rounding = ROUNDING.float64 * np.trace(before)
    assert np.linalg.eigvalsh(before - after).min() > -rounding
    assert np.linalg.eigvalsh(after).min() > -rounding
    assert np.all(posterior.variance(X) > 0.0)
    assert np.all(posterior.variance(X) <= prior.variance(X) + rounding)


@pytest.mark.parametrize(
    ("kind", "methods"),
    [("separate", ["predict"]), ("mixed", ["covariance", "predict"])],
)
def test_in_a_graph_with_batches_of_unknown_size(kind, methods, data, X):
    process = gvi.GaussianProcess(sloped(J), KERNELS[kind]).condition(*data, 0.2)
    signature = [tf.TensorSpec([None, D], tf.float64)]
    for method in (getattr(process, name) for name in methods):
        compiled = tf.function(method, input_signature=signature, autograph=False)
        for rows in (X, X[:2]):
            for got, expected in zip(
                tf.nest.flatten(compiled(rows)), tf.nest.flatten(method(rows)), strict=True
            ):
                assert_close(got, expected)


def test_active_dimensions_are_respected(rng):
    """Conditioning on a kernel of the first input only leaves the second one without effect."""
    kernel = Periodic(SquaredExponential(active_dims=[0])) + Matern32(active_dims=[0])
    Z, X = rng.normal(size=(4, D)), rng.normal(size=(3, D))
    posterior = gvi.GaussianProcess(Zero(), kernel).condition(Z, Z[:, :1], 0.1)
    moved = X * [1.0, 9.0]
    assert_close(posterior.mean(moved), posterior.mean(X))
    assert_close(posterior.variance(moved), posterior.variance(X))
    assert_differ(posterior.mean(X * [0.9, 1.0]), posterior.mean(X))


class Quadratic(gpflow.functions.MeanFunction):
    """A mean function that does not declare its number of columns."""

    def __call__(self, X):
        return tf.stack([tf.reduce_sum(X**2, axis=-1)] * J, axis=-1)


def test_the_number_of_outputs_is_known_where_a_part_declares_it(X, data):
    Z, U = data
    inducing = gvi.mean_functions.Inducing(Matern32(), Z, num_latent_gps=J)
    svgp = gvi.covariances.CholeskySVGP(Matern32(), Z)
    single = gvi.GaussianProcess(Quadratic(), Matern32())
    assert gvi.GaussianProcess(inducing, Matern32()).num_outputs == J
    assert gvi.GaussianProcess(Quadratic(), svgp).num_outputs == J  # at Z
    assert single.num_outputs is None
    assert single.at(X).num_outputs == J
    assert single.condition(Z, U, 0.1).num_outputs == J
    disagreeing = gvi.GaussianProcess(inducing, gvi.covariances.Tempered(Matern32(), [1.0, 2.0]))
    with pytest.raises(ValueError, match="mean_function has 3 outputs and kernel has 2; they must"):
        _ = disagreeing.num_outputs


@pytest.mark.slow
@pytest.mark.parametrize("noise_variance", [0.2, gpflow.Parameter(0.2)])
def test_conditioning_inside_a_function_converted_by_autograph(noise_variance, data, X):
    process = gvi.GaussianProcess(sloped(J), KERNELS["separate"])
    Z, U = map(tf.constant, data)

    @tf.function
    def mean() -> tf.Tensor:
        return process.condition(Z, U, noise_variance).mean(X)

    expected = process.condition(Z, U, 0.2).mean(X)
    assert_close(mean(), expected)

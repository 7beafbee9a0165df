"""Drawn functions and joint samples against the process that they are drawn from."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import kernels
from gpflow.inducing_variables import InducingPoints, Multiscale

import gpflow_gvi as gvi
from gpflow_gvi.kernels import FeatureMap, LogInputs
from gpflow_gvi.prediction import samples as sampling
from gpflow_gvi.prediction.samples import spectrum
from tests import catalogue
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

pytestmark = pytest.mark.draws

S, N, M = 1000, 5, 5
CONSISTENT = sorted(set(catalogue.COVARIANCES) - {"FixedSparsePosterior"})


def variational(name: str, kernel: kernels.Kernel, J: int, rng: np.random.Generator):
    """A variational process with a mean that is not zero, on a line."""
    Z = catalogue.inducing_points(np.linspace(-2.0, 2.0, M)[:, None])
    covariance = catalogue.COVARIANCES[name](kernel, Z, num_latent_gps=J)
    q_mu = rng.normal(size=(M, J))
    mean = gvi.mean_functions.Inducing(kernel, Z, q_mu=q_mu)
    return gvi.GaussianProcess(mean, covariance)


def require_moments(samples, process, X) -> None:
    """Compare moments of samples [S, N, J] with those of the process."""
    samples, mean, C = (
        np.asarray(part) for part in (samples, process.mean(X), process.covariance(X))
    )
    count = len(samples)
    variances = np.einsum("jnn->jn", C)
    assert samples.shape == (count, *mean.shape)
    variances = variances + gpflow.config.default_jitter()  # as a factor is that of C and jitter
    assert_estimates(samples.mean(axis=0), mean, np.sqrt(variances / count).T)
    deviations = samples - mean
    empirical = np.einsum("snj,smj->jnm", deviations, deviations) / count
    scale = np.sqrt(variances[:, :, None] * variances[:, None, :])
    assert_estimates(empirical, C, np.sqrt((scale**2 + C**2) / count))
    between = np.einsum("snj,smk->jknm", deviations, deviations) / count
    for j, k in zip(*np.triu_indices(mean.shape[1], 1), strict=True):
        scale = np.sqrt(variances[j][:, None] * variances[k][None])
        assert_estimates(between[j, k], np.zeros_like(scale), scale / np.sqrt(count))


# Joint samples.


@pytest.mark.parametrize("name", catalogue.covariances_in_turn())
def test_joint_samples_have_the_moments_of_the_process(name, rng):
    """Rows that coincide make every covariance singular."""
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    X = np.vstack([X, X[:2]])
    J, kernel = 2, catalogue.kernels(2)["separate"]
    process = variational(name, kernel, J, rng)
    samples = process.sample(X, S, seed=1).numpy()
    require_moments(samples, process, X)
    assert_close(samples[:, :2], samples[:, N:], ITERATIVE)  # jitter


def test_joint_samples_of_correlated_outputs(rng):
    W = np.array([[1.0, 0.3], [-0.8, 0.5]])
    parts = [kernels.SquaredExponential(), kernels.Matern32(0.5)]
    process = gvi.GaussianProcess(
        gpflow.functions.Constant([1.0, -2.0]), kernels.LinearCoregionalization(parts, W)
    )
    X = rng.normal(size=(3, 2))
    samples = process.sample(X, 20000, seed=0).numpy()
    latent = np.stack([part(X).numpy() for part in parts])
    C = np.einsum("al,lnm,bl->namb", W, latent, W).reshape(6, 6)
    variance = np.diag(C)
    rows = samples.reshape(-1, 6)
    assert_estimates(rows.mean(axis=0), [1.0, -2.0] * 3, np.sqrt(variance / len(rows)))
    error = np.sqrt((np.outer(variance, variance) + C**2) / len(rows))
    assert_estimates(np.cov(rows.T), C, error)


def test_joint_samples_follow_their_seed(rng):
    process = variational("CholeskySVGP", kernels.SquaredExponential(), 1, rng)
    X = rng.normal(size=(N, 1))
    first, again, other = (process.sample(X, 3, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1
    unseeded = [process.sample(X, 3) for _ in range(2)]
    assert np.abs(unseeded[0] - unseeded[1]).max() > 0.1


@pytest.mark.parametrize("name", ["CholeskySVGP", "FixedSparsePosterior"])
def test_samples_of_a_model(name, rng):
    """GPflow's predict_f_samples draws from Q."""
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    J, kernel = 2, catalogue.kernels(2)["separate"]
    process = variational(name, kernel, J, rng)
    model = gvi.models.GVI(
        gvi.GaussianProcess(gpflow.functions.Zero(), kernel),
        process,
        gpflow.likelihoods.Gaussian(),
        gvi.divergences.ProjectedWasserstein(),
        num_data=100,
    )
    require_moments(model.predict_f_samples(X, S), process, X)
    apart = model.predict_f_samples(X, S, full_cov=False).numpy()
    variance = process.variance(X).numpy()
    assert_estimates(apart.var(axis=0), variance, np.sqrt(2.0 / S) * variance)
    assert model.predict_f_samples(X).shape == (N, J)
    assert model.predict_f_samples(X, 0).shape == (0, N, J)


# Functions.

SHORT = kernels.SquaredExponential(lengthscales=0.5)
"""Few points leave variance everywhere. Where there is next to none, that of features shows."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSISTENT)
def test_functions_have_the_moments_of_the_process(name, rng):
    """At inputs among, near and far from the inducing points, some of them repeated."""
    X = np.concatenate([rng.uniform(-3.0, 3.0, size=N), [-2.0, 0.0, 7.0]])[:, None]
    J, kernel = 2, catalogue.kernels(2)["separate"]
    process = variational(name, kernel, J, rng)
    functions = sampling.draw_functions(process, S, seed=2)
    require_moments(functions(X), process, X)


@pytest.mark.parametrize("kind", ["single", "shared"])
def test_functions_of_outputs_that_share_a_kernel(kind, rng):
    process = variational("CholeskySVGP", catalogue.kernels(2)[kind], 2, rng)
    X = rng.normal(size=(N, 1))
    require_moments(sampling.draw_functions(process, S, seed=3)(X), process, X)


def test_functions_with_separate_inducing_points(rng):
    kernel = kernels.SeparateIndependent([SHORT, kernels.Matern52(0.5, 0.5)])
    Z = gpflow.inducing_variables.SeparateIndependentInducingVariables(
        [InducingPoints(rng.uniform(-2.0, 2.0, size=(M, 1))) for _ in range(2)]
    )
    process = gvi.GaussianProcess(
        gpflow.functions.Zero(2), gvi.covariances.SparsePosterior(kernel, Z)
    )
    functions = sampling.draw_functions(process, S, seed=3, input_dim=1)
    X = rng.normal(size=(N, 1))
    require_moments(functions(X), process, X)


KERNELS = {
    "SquaredExponential": lambda: kernels.SquaredExponential(1.3, [0.7, 2.0]),
    "active_dims": lambda: kernels.SquaredExponential(1.3, 0.7, active_dims=[1]),
    "RationalQuadratic": lambda: kernels.RationalQuadratic(0.8, [0.7, 2.0], alpha=1.5),
    "Exponential": lambda: kernels.Exponential(0.8, 0.6),
    "Matern12": lambda: kernels.Matern12(0.8, [0.7, 2.0]),
    "Matern32": lambda: kernels.Matern32(0.8, [0.7, 2.0]),
    "Matern52": lambda: kernels.Matern52(0.8, [0.7, 2.0]),
    "Product": lambda: kernels.SquaredExponential(1.3, 1.1) * kernels.Matern32(0.7, [2.0, 1.0]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_frequencies_give_the_kernel(name, rng):
    kernel = KERNELS[name]()
    F = 40_000
    variance, frequencies = spectrum(kernel, 2, F, rng)
    X = rng.normal(size=(10, 2))
    angles = (X[:, None] - X[None]) @ frequencies.numpy()  # [N, N, F]
    found = variance * np.cos(angles).mean(axis=-1)
    assert_estimates(found, kernel(X), variance * np.sqrt(0.5 / F))  # a cosine's variance is ½


def test_frequencies_are_spread_evenly(rng):
    kernel = kernels.SquaredExponential()
    X = np.linspace(-2.0, 2.0, 30)[:, None]

    def error(frequencies):
        angles = (X[:, None] - X[None]) @ frequencies
        return np.abs(np.cos(angles).mean(axis=-1) - kernel(X)).max()

    _, frequencies = spectrum(kernel, 1, 500, rng)
    independent = min(error(rng.normal(size=(1, 500))) for _ in range(5))
    assert error(frequencies.numpy()) < 0.25 * independent


PRIORS = {
    "Linear": lambda: kernels.Linear([0.5, 1.7]),
    "Linear on one column": lambda: kernels.Linear(1.7, active_dims=[1]),
    "Constant": lambda: kernels.Constant(0.6),
    "Product": KERNELS["Product"],
    "Sum": lambda: kernels.SquaredExponential(0.5) + kernels.Linear(0.4) + kernels.Constant(0.3),
    "Tempered": lambda: gvi.covariances.Tempered(kernels.Linear(0.5), [0.3, 2.0]),
    "SharedIndependent": lambda: kernels.SharedIndependent(kernels.Matern52(), 2),
    "SeparateIndependent": lambda: kernels.SeparateIndependent(
        [kernels.Matern52(), kernels.Linear(2.0)]
    ),
    "FeatureMap": lambda: FeatureMap(
        kernels.SquaredExponential(1.2, [0.7, 0.5, 1.0]), lambda X: tf.tanh(tf.matmul(X, WEIGHTS))
    ),
    "LogInputs": lambda: LogInputs(
        kernels.SquaredExponential(1.2, [0.7, 0.5]), np.eye(2) + 0.5, np.array([-3.5, np.nan])
    ),
    "FeatureMap(Linear)": lambda: FeatureMap(
        kernels.Linear(), lambda X: tf.tanh(tf.matmul(X, WEIGHTS))
    ),
}
WEIGHTS = np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -1.0]])


@pytest.mark.parametrize("name", PRIORS)
def test_functions_of_prior_kernels(name, rng):
    process = gvi.GaussianProcess(gpflow.functions.Constant([0.5, -1.0]), PRIORS[name]())
    functions = sampling.draw_functions(process, S, seed=4, input_dim=2)
    X = rng.normal(size=(N, 2))
    require_moments(functions(X), process, X)


@pytest.mark.parametrize("noise", [0.0, [0.1, 0.4]])
def test_functions_of_a_conditioned_process(noise, rng):
    Z, U, X = rng.uniform(-2, 2, size=(5, 1)), rng.normal(size=(5, 2)), rng.normal(size=(N, 1))
    prior = gvi.GaussianProcess(gpflow.functions.Constant(5.0), SHORT)
    process = prior.condition(Z, U, noise)
    functions = sampling.draw_functions(process, S, seed=5)
    require_moments(functions(X), process, X)
    if noise == 0.0:
        assert_close(functions(Z), np.broadcast_to(U, (S, 5, 2)))
    again = process.condition(X[:2], U[:2], 0.3)
    require_moments(sampling.draw_functions(again, S, seed=6)(X), again, X)


def test_functions_of_a_weight_space_posterior(rng):
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernels.Linear(2.0) + kernels.Constant())
    process = prior.condition(rng.normal(size=(9, 2)), rng.normal(size=(9, 1)), 0.5)
    assert type(process.kernel).__name__ == "WeightCovariance"
    X = rng.normal(size=(N, 2))
    functions = sampling.draw_functions(process, S, seed=5)
    require_moments(functions(X), process, X)
    assert_close(functions(X) + functions(-X), 2.0 * functions(0.0 * X))  # they are affine


@pytest.mark.parametrize("name", CONSISTENT)
def test_a_function_is_the_same_wherever_it_is_evaluated(name, rng):
    process = variational(name, kernels.SquaredExponential(), 1, rng)
    functions = sampling.draw_functions(process, 3, seed=7)
    X = rng.uniform(-3.0, 3.0, size=(50, 1))
    values = functions(X).numpy()
    assert_close(functions(X[::-1])[:, ::-1], values)
    pieces = [functions(X[i : i + 20]) for i in range(0, 50, 20)]
    assert_close(np.concatenate(pieces, axis=1), values)


def test_functions_in_a_graph(rng):
    process = variational("CholeskySVGP", kernels.SquaredExponential(), 1, rng)
    functions = sampling.draw_functions(process, 3, seed=7)
    X = rng.uniform(-3.0, 3.0, size=(20, 1))
    signature = [tf.TensorSpec([None, 1], gpflow.default_float())]
    compiled = tf.function(functions, input_signature=signature, autograph=False)
    for rows in (X, X[:4]):
        assert_close(compiled(rows), functions(rows))


def test_functions_keep_the_parameters_they_were_drawn_with(rng):
    process = variational("CholeskySVGP", kernels.SquaredExponential(), 1, rng)
    X = rng.normal(size=(N, 1))
    functions = sampling.draw_functions(process, 2, seed=0)
    before = functions(X).numpy()
    process.kernel.kernel.lengthscales.assign(0.1)
    process.mean_function.q_mu.assign(process.mean_function.q_mu + 1.0)
    process.kernel.q_sqrt.assign(0.1 * process.kernel.q_sqrt)
    np.testing.assert_array_equal(functions(X), before)


@pytest.mark.parametrize("kernel", [kernels.SquaredExponential(), kernels.Matern32()])
def test_sparse_posterior_functions_meet_the_mean_at_inducing_points(kernel, rng):
    process = variational("SparsePosterior", kernel, 1, rng)
    Z = process.kernel.inducing_variable.Z
    values = sampling.draw_functions(process, S, seed=8)(Z)
    assert_estimates(values, process.mean(Z), np.sqrt(gpflow.config.default_jitter()))
    variance = process.variance(Z).numpy()  # of the order of the jitter
    assert_estimates(np.var(values, axis=0), variance, np.sqrt(2.0 / S) * variance)


def test_functions_can_be_differentiated(rng):
    process = variational("CholeskySVGP", kernels.Matern52(), 1, rng)
    functions = sampling.draw_functions(process, 4, seed=9)
    X = tf.constant(rng.normal(size=(N, 1)))
    with tf.GradientTape() as tape:
        tape.watch(X)
        values = functions(X)
    slopes = tape.gradient(values, X)  # of the sum over the functions
    h = 1e-5
    differences = (functions(X + h) - functions(X - h)) / (2.0 * h)
    assert_close(slopes, tf.reduce_sum(differences, axis=0), ITERATIVE)


def test_functions_of_a_network_mean(rng):
    def network(X):
        return tf.sin(3.0 * X)

    covariance = gvi.covariances.SparsePosterior(SHORT, rng.uniform(-2, 2, size=(M, 1)))
    process = gvi.GaussianProcess(gvi.mean_functions.Network(network), covariance)
    X = rng.normal(size=(N, 1))
    require_moments(sampling.draw_functions(process, S, seed=1)(X), process, X)


def test_functions_follow_their_seed(rng):
    process = variational("KernelisedSVGP", kernels.SquaredExponential(), 1, rng)
    X = rng.normal(size=(N, 1))
    tf.random.set_seed(1)
    first = sampling.draw_functions(process, 3, seed=1)(X)
    tf.random.set_seed(2)
    np.testing.assert_array_equal(first, sampling.draw_functions(process, 3, seed=1)(X))
    generator = np.random.default_rng(1)
    np.testing.assert_array_equal(first, sampling.draw_functions(process, 3, seed=generator)(X))
    for other in (2, generator, None):
        assert np.abs(first - sampling.draw_functions(process, 3, seed=other)(X)).max() > 0.1


@pytest.mark.parametrize("name", ["CholeskySVGP", "KernelisedSVGP"])
def test_functions_in_single_precision(name):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        rng = np.random.default_rng(0)
        kernel = kernels.SquaredExponential(1.3, 0.8)
        process = variational(name, kernel, 1, rng)
        X = rng.uniform(-3.0, 3.0, size=(N, 1)).astype(np.float32)
        values = sampling.draw_functions(process, S, seed=2)(X)
        joint = process.sample(X, S, seed=2)
        assert values.dtype == joint.dtype == tf.float32
        require_moments(values, process, X)
        require_moments(joint, process, X)


# Bad input.


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (kernels.Polynomial(), "kernel is a Polynomial"),
        (kernels.White(), "kernel is a White"),
        (kernels.Cosine(), "is .* a Cosine"),
        (kernels.SquaredExponential() * kernels.Linear(), "as a factor.* a Linear"),
        (
            kernels.LinearCoregionalization([kernels.SquaredExponential()], np.ones((2, 1))),
            "kernel is a LinearCoregionalization",
        ),
        (
            gvi.covariances.FixedSparsePosterior(kernels.SquaredExponential(), np.zeros((1, 2))),
            "kernel is a FixedSparsePosterior",
        ),
    ],
)
def test_kernels_without_functions(kernel, message):
    process = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    with pytest.raises(TypeError, match=message):
        sampling.draw_functions(process, 2, input_dim=2)


def test_another_kernel_can_be_taught(rng):
    class Doubled(kernels.SquaredExponential):
        """Two functions of the other kernel in one."""

        def K(self, X, X2=None):
            return 4.0 * super().K(X, X2)

        def K_diag(self, X):
            return 4.0 * super().K_diag(X)

    process = gvi.GaussianProcess(gpflow.functions.Zero(), Doubled())
    with pytest.raises(TypeError, match=r"Doubled.*deviations\.register"):
        sampling.draw_functions(process, 2, input_dim=1)

    @sampling.deviations.register(Doubled)
    def _doubled(kernel: Doubled, draw: sampling.Draw) -> sampling.Functions:
        single = sampling.deviations(kernels.SquaredExponential(), draw)
        return lambda X: 2.0 * single(X)

    X = rng.normal(size=(N, 1))
    functions = sampling.draw_functions(process, S, seed=1, input_dim=1)
    require_moments(functions(X), process, X)


def test_bad_arguments(rng):
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernels.SquaredExponential())
    with pytest.raises(TypeError, match=r"process is .*GaussianProcess"):
        sampling.draw_functions(kernels.SquaredExponential(), 2)
    with pytest.raises(ValueError, match=r"input_dim is None.*pass input_dim"):
        sampling.draw_functions(prior, 2)
    with pytest.raises(ValueError, match="num_samples is 0"):
        sampling.draw_functions(prior, 0, input_dim=1)
    with pytest.raises(ValueError, match="num_features is 1"):
        sampling.draw_functions(prior, 1, num_features=1, input_dim=1)
    functions = sampling.draw_functions(prior, 1, input_dim=2)
    with pytest.raises(ValueError, match=r"X has 3 columns.*2"):
        functions(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"X has shape .* no data points"):
        functions(np.zeros((0, 2)))
    with pytest.raises(TypeError, match=r"X is .* makes no array"):
        functions(np.ndarray)
    np.testing.assert_array_equal(
        functions(np.zeros((4, 2), np.float32)), functions(np.zeros((4, 2)))
    )
    other = Multiscale(rng.normal(size=(3, 1)), np.ones((3, 1)))
    covariance = gvi.covariances.SparsePosterior(kernels.SquaredExponential(), other)
    with pytest.raises(TypeError, match=r"inducing_variable is .*Multiscale"):
        sampling.draw_functions(gvi.GaussianProcess(gpflow.functions.Zero(), covariance), 2)


def test_the_smallest_number_of_features_is_that_of_one_frequency():
    process = gvi.GaussianProcess(gpflow.functions.Zero(), kernels.SquaredExponential())
    draw = gvi.sampling.draw_functions
    assert draw(process, 3, num_features=2, input_dim=1)(np.zeros((4, 1))).shape == (3, 4, 1)

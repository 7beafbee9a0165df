"""Conditioning by weights: against dense numpy by functions, and against a QR of the features."""

from __future__ import annotations

import pickle
import warnings

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import Constant, Linear, SharedIndependent

import gpflow_gvi as gvi
from gpflow_gvi._core.memo import memoised
from gpflow_gvi.covariances.conditional import ConditionalCovariance, WeightCovariance
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.kernels.feature_map import FeatureMap
from gpflow_gvi.kernels.finite_features import features
from gpflow_gvi.models import GVIPosterior
from tests import networks
from tests.designs import each_value
from tests.tolerances import ITERATIVE, assert_close, assert_differ

M, J = 15, 2
PRIOR_MEAN = gpflow.functions.Linear(A=np.array([[0.7, 0.1], [-0.2, 0.4]]), b=[1.0, -2.0])


def kernels():
    return {
        "Linear": Linear(variance=0.7),
        "ARD": Linear(variance=[0.7, 2.0]),
        "active_dims": Linear(active_dims=[1]),
        "Constant": Constant(1.7),
        "Sum": Linear(variance=[0.7, 2.0]) + Constant(0.3),
        "FeatureMap": FeatureMap(Linear(variance=1.4), networks.Perceptron(3)),
        "FeatureMap of Sum": FeatureMap(Linear() + Constant(0.5), networks.Perceptron(4)),
        "Sum with FeatureMap": FeatureMap(Linear(), networks.Perceptron(3)) + Linear(),
    }


KERNELS = pytest.mark.parametrize("kernel", kernels().values(), ids=kernels())


def observed(rng):
    return rng.normal(size=(M, 2)), rng.normal(size=(M, J)), rng.normal(size=(6, 2))


@KERNELS
def test_features_are_a_root_of_the_kernel(kernel, rng):
    X, X2 = rng.normal(size=(5, 2)), rng.normal(size=(4, 2))
    phi = features(kernel)
    product = phi(X).numpy() @ phi(X2).numpy().T
    assert_close(product, kernel(X, X2))
    np.testing.assert_array_equal(features(SharedIndependent(kernel, 2))(X), phi(X))


@pytest.mark.parametrize(
    "kernel",
    [
        gpflow.kernels.SquaredExponential(),
        gpflow.kernels.Polynomial(2.0),  # a subclass of Linear
        Linear() + gpflow.kernels.Matern32(),
        FeatureMap(gpflow.kernels.Matern32(), networks.Perceptron()),
        gpflow.kernels.SeparateIndependent([Linear(), Linear()]),
    ],
    ids=["SquaredExponential", "Polynomial", "Sum", "FeatureMap", "SeparateIndependent"],
)
def test_other_kernels_have_none_and_are_conditioned_as_functions(kernel, rng):
    assert features(kernel) is None
    Z, U, _ = observed(rng)
    posterior = gvi.GaussianProcess(PRIOR_MEAN, kernel).condition(Z, U, 0.1)
    assert isinstance(posterior.kernel, ConditionalCovariance)


@pytest.mark.parametrize(
    ("kernel", "noise", "shared"),
    # Every kernel, and each way to share with each kind of noise.
    each_value(kernels().values(), [0.3, [0.05, 2.0]], [False, False, True, True]),
)
def test_is_conditioning_of_the_joint_gaussian(kernel, noise, shared, rng):
    """Rasmussen and Williams (2006), eq. 2.22 to 2.24, as written there."""
    Z, U, X = observed(rng)
    X2 = X[:4] + 0.3
    prior = gvi.GaussianProcess(PRIOR_MEAN, SharedIndependent(kernel, J) if shared else kernel)
    posterior = prior.condition(Z, U, noise)
    assert isinstance(posterior.kernel, WeightCovariance)
    gram, cross, cross2 = (kernel(Z, inputs).numpy() for inputs in (Z, X, X2))
    for j in range(J):
        noisy = gram + np.broadcast_to(noise, [J])[j] * np.eye(M)
        mean = PRIOR_MEAN(X)[:, j] + cross.T @ np.linalg.solve(noisy, (U - PRIOR_MEAN(Z))[:, j])
        covariance = kernel(X).numpy() - cross.T @ np.linalg.solve(noisy, cross)
        between = kernel(X, X2).numpy() - cross.T @ np.linalg.solve(noisy, cross2)
        assert_close(posterior.mean(X)[:, j], mean)
        assert_close(posterior.variance(X)[:, j], np.diag(covariance))
        assert_close(posterior.covariance(X)[j], covariance)
        assert_close(posterior.covariance(X, X2)[j], between)


def test_conditioning_twice_is_conditioning_on_both(rng):
    """The first posterior has no features to the second, which then works with functions."""
    Z, U, X = observed(rng)
    prior = gvi.GaussianProcess(PRIOR_MEAN, kernels()["FeatureMap"])
    both = prior.condition(Z, U, 0.2)
    in_turn = prior.condition(Z[:9], U[:9], 0.2).condition(Z[9:], U[9:], 0.2)
    assert_close(in_turn.mean(X), both.mean(X))
    assert_close(in_turn.variance(X), both.variance(X))


def test_the_smaller_system_is_solved(rng):
    Z, U, _ = observed(rng)
    prior = gvi.GaussianProcess(PRIOR_MEAN, Linear())
    for count, noise, expected in (
        (3, 0.1, WeightCovariance),
        (2, 0.1, ConditionalCovariance),  # as many features as observations
        (3, 0.0, ConditionalCovariance),  # exact values: no noise to divide by
        (3, [0.1, 0.0], ConditionalCovariance),
    ):
        kernel = prior.condition(Z[:count], U[:count], noise).kernel
        assert type(kernel) is expected
        assert np.all(np.isfinite(kernel.output_variance(Z)))


def test_little_noise_cancels_nothing(rng):
    """σ² = 1e-10 and a thousand observations: variances 1e13 times smaller than the prior's."""
    noise = 1e-10
    Z, X = rng.normal(size=(1000, 2)), rng.normal(size=(50, 2))
    U = Z @ np.array([[1.0, -1.0], [0.5, 2.0]])
    posterior = gvi.GaussianProcess(gpflow.functions.Zero(), Linear()).condition(Z, U, noise)
    R = np.linalg.qr(np.vstack([Z / np.sqrt(noise), np.eye(2)]))[1]
    expected = np.sum(np.linalg.solve(R.T, X.T) ** 2, axis=0)
    assert expected.max() < noise
    assert_close(posterior.variance(X)[:, 0], expected)
    expected = X @ [[1.0, -1.0], [0.5, 2.0]]
    assert_close(posterior.mean(X), expected)


def test_a_posterior_keeps_the_solution(rng):
    Z, U, X = observed(rng)
    shapes = []
    network = networks.Perceptron(3)
    kernel = FeatureMap(Linear(), lambda X: shapes.append(tuple(X.shape)) or network(X))
    kernel.network._known = True  # it may use the perceptron's variables without training them
    process = gvi.GaussianProcess(PRIOR_MEAN, kernel).condition(Z, U, 0.2)
    cached = GVIPosterior(process)
    shapes.clear()
    mean, variance = cached.predict_f(X)
    assert shapes == [(6, 2)]
    assert_close(mean, process.mean(X))
    assert_close(variance, process.variance(X))


def test_in_a_graph_it_is_the_same_and_its_gradient_is_the_dense_one_s(rng):
    Z, U, X = observed(rng)
    kernel = Linear(variance=[0.7, 2.0])
    posterior = gvi.GaussianProcess(PRIOR_MEAN, kernel).condition(Z, U, 0.3)

    @tf.function(autograph=False)
    def by_weights():
        with tf.GradientTape() as tape, memoised():
            value = tf.reduce_sum(posterior.mean(X)) + tf.reduce_sum(posterior.variance(X))
        return value, tape.gradient(value, kernel.variance.unconstrained_variable)

    def dense():
        K, Kx = kernel(Z) + 0.3 * tf.eye(M, dtype=tf.float64), kernel(Z, X)
        mean = PRIOR_MEAN(X) + tf.matmul(
            Kx, tf.linalg.solve(K, U - PRIOR_MEAN(Z)), transpose_a=True
        )
        removed = tf.linalg.diag_part(tf.matmul(Kx, tf.linalg.solve(K, Kx), transpose_a=True))
        return tf.reduce_sum(mean) + J * tf.reduce_sum(kernel(X, full_cov=False) - removed)

    with tf.GradientTape() as tape:
        expected = dense()
    value, gradient = by_weights()
    assert_close(value, expected)
    assert_close(gradient, tape.gradient(expected, kernel.variance.unconstrained_variable))


# Observations are constants of the model: weights that are not trained.

SYSTEMS = pytest.mark.parametrize(
    "make",
    [lambda: Linear(variance=[0.7, 2.0]), lambda: gpflow.kernels.Matern32()],
    ids=["features", "kernel"],
)


@SYSTEMS
def test_a_process_of_the_same_structure_is_reproduced_by_its_weights(make, rng):
    """A graph that was traced before has the new observations, too."""
    Z, U, X = observed(rng)
    first = gvi.GaussianProcess(PRIOR_MEAN, make()).condition(Z, U, 0.3)
    second = gvi.GaussianProcess(PRIOR_MEAN, make()).condition(Z + 1.0, 2.0 * U, 0.1)
    predict = tf.function(second.predict, autograph=False)
    assert_differ(predict(X)[0], first.mean(X))
    for target, source in zip(second.variables, first.variables, strict=True):
        target.assign(source)
    for mine, theirs in zip(predict(X), first.predict(X), strict=True):
        assert_close(mine, theirs)


@SYSTEMS
@pytest.mark.parametrize(
    "copy",
    [gpflow.utilities.deepcopy, lambda process: pickle.loads(pickle.dumps(process))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_has_observations_of_its_own_and_trains_none_of_them(make, copy, rng):
    Z, U, X = observed(rng)
    prior = gvi.GaussianProcess(PRIOR_MEAN, make())
    process = prior.condition(Z, U, 0.3)
    copied, before = copy(process), process.mean(X).numpy()
    np.testing.assert_array_equal(copied.mean(X), before)
    for part in (process, copied):
        assert len(part.trainable_variables) == len(prior.trainable_variables)
        assert len(part.variables) == len(prior.variables) + 3  # Z, U and σ²
    copied.mean_function.observations.U.assign(U + 1.0)
    assert_differ(copied.mean(X), before)
    np.testing.assert_array_equal(process.mean(X), before)


@SYSTEMS
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_gradients_pass_through_conditioning(make, compiled, rng):
    """The mean is m(x) + W (U - m(Z)), so that its derivatives in U are W = K_xZ (K + σ²I)⁻¹."""
    Z, U, X = observed(rng)
    kernel, noise = make(), tf.constant(0.3, tf.float64)

    def slopes(U, noise):
        with tf.GradientTape() as tape:
            tape.watch((U, noise))
            mean = gvi.GaussianProcess(PRIOR_MEAN, kernel).condition(Z, U, noise).mean(X)
            total = tf.reduce_sum(mean)
        return tape.gradient(total, (U, noise))

    if compiled:
        slopes = tf.function(slopes, autograph=False)
    of_U, of_noise = slopes(tf.constant(U), noise)
    weights = np.linalg.solve(kernel(Z).numpy() + 0.3 * np.eye(M), kernel(Z, X).numpy())
    assert_close(of_U, weights.sum(axis=1)[:, None] * np.ones(J))
    residual = np.linalg.solve(kernel(Z).numpy() + 0.3 * np.eye(M), U - PRIOR_MEAN(Z))
    assert_close(of_noise, -np.sum(weights.sum(axis=1) @ residual))


@pytest.mark.parametrize(
    ("dtype", "noise_variance", "warns"),
    [(np.float32, 1e-6, True), (np.float32, 1e-3, False), (np.float64, 1e-6, False)],
)
def test_observations_that_rounding_hides_are_warned_of(rng, dtype, noise_variance, warns):
    """Where there is no warning both precisions agree within a hundredth of what they say."""
    Z, X = rng.uniform(-2.0, 2.0, size=(60, 1)), np.linspace(-2.0, 2.0, 9)[:, None]
    U = np.sin(2.0 * Z)
    K, cross = (np.exp(-0.5 * (Z - other.T) ** 2) for other in (Z, X))
    solved = np.linalg.solve(K + noise_variance * np.eye(60), cross)
    with gpflow.config.as_context(gpflow.config.Config(float=dtype)):
        prior = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.SquaredExponential())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NumericsWarning)
            posterior = prior.condition(Z.astype(dtype), U.astype(dtype), noise_variance)
        variance = posterior.variance(X.astype(dtype)).numpy()[:, 0]
        mean = posterior.mean(X.astype(dtype)).numpy()
    expected = 1.0 - np.sum(cross * solved, axis=0)
    numerics = [warning for warning in caught if warning.category is NumericsWarning]
    if warns:
        assert np.max(np.abs(variance / expected - 1.0)) > ITERATIVE.float32
        assert "Use float64, a larger" in str(numerics[0].message)
        assert numerics[0].filename == __file__
    else:
        assert not numerics
        assert_close(variance, expected, ITERATIVE, scale=expected, precision=np.float32)
        deviation = np.sqrt(expected)[:, None]
        assert_close(mean, solved.T @ U, ITERATIVE, scale=deviation, precision=np.float32)


@pytest.mark.parametrize(("M", "warns"), [(16, False), (400, True)])
def test_what_rounding_hides_grows_with_the_root_of_the_number_of_observations(M, warns):
    """Of equal points K = 11ᵀ, so that all pivots but the first are σ²: here 25 ε √64."""
    noise_variance = 25.0 * np.finfo(np.float64).eps * 8.0
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), gpflow.kernels.SquaredExponential())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NumericsWarning)
        prior.condition(np.zeros((M, 1)), np.zeros((M, 1)), noise_variance)
    assert any(warning.category is NumericsWarning for warning in caught) == warns


def test_each_of_correlated_outputs_has_its_block_of_the_joint_covariance(rng):
    """Against the formula for the vector of all values, dense in NumPy."""
    kernel = gpflow.kernels.LinearCoregionalization(
        [gpflow.kernels.SquaredExponential(), gpflow.kernels.Matern32()], rng.normal(size=(3, 2))
    )
    Z, U, X = rng.normal(size=(4, 2)), rng.normal(size=(4, 3)), rng.normal(size=(5, 2))
    posterior = gvi.GaussianProcess(gpflow.functions.Zero(3), kernel).condition(Z, U, 0.2)

    def joint(A, B):
        return np.reshape(kernel(A, B, full_cov=True), (3 * len(A), 3 * len(B)))

    cross = joint(X, Z)
    K = joint(X, X) - cross @ np.linalg.solve(joint(Z, Z) + 0.2 * np.eye(12), cross.T)
    blocks = np.einsum("njmj->jnm", K.reshape(5, 3, 5, 3))
    assert_close(posterior.covariance(X), blocks)
    assert_close(posterior.covariance(X, X[:2]), blocks[:, :, :2])
    assert_close(posterior.variance(X), np.einsum("jnn->nj", blocks))

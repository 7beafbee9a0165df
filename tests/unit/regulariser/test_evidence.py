"""The evidence: against scipy's densities, GPflow's GPR and SGPR, and in the limits."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import tensorflow as tf

from gpflow_gvi import GaussianProcess
from gpflow_gvi.regulariser.evidence import DataEvidence, InducingEvidence, titsias_gap
from tests import catalogue
from tests.references import jitter_of_posteriors
from tests.tolerances import ITERATIVE, assert_close

N, M = 30, 7


@pytest.fixture
def data(rng):
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    Y = np.stack([np.sin(2.0 * X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * rng.normal(size=(N, 2))
    return X, Y


def _prior(J, sharing, mean=0.3):
    kernel = catalogue.kernels(J)[sharing]
    return GaussianProcess(gpflow.functions.Constant(np.full(J, mean)), kernel)


def _tensors(*arrays):
    return tuple(tf.convert_to_tensor(array) for array in arrays)


def _of_graph(kernel, X, Y, noise):
    prior = GaussianProcess(gpflow.functions.Zero(), kernel)
    return DataEvidence().log_density(prior, noise, _tensors(X, Y), _tensors(X, Y))


@pytest.mark.parametrize("noise", [0.2, [0.2, 0.7]], ids=["one noise", "two noises"])
@pytest.mark.parametrize("sharing", ["single", "separate"])
def test_inducing_evidence_is_the_density_of_the_observations(data, sharing, noise):
    X, Y = data
    prior = _prior(2, sharing)
    value = InducingEvidence().log_density(prior, noise, _tensors(X, Y), ())
    noises = np.broadcast_to(noise, [2])
    covariances = np.broadcast_to(prior.covariance(X), [2, N, N])
    expected = sum(
        scipy.stats.multivariate_normal.logpdf(
            Y[:, j], np.full(N, 0.3), covariances[j] + noises[j] * np.eye(N)
        )
        for j in range(2)
    )
    assert_close(value, expected)


def test_inducing_evidence_conditions_as_gpr(data):
    X, Y = data
    kernel = catalogue.kernels(1)["single"]
    prior = GaussianProcess(gpflow.functions.Zero(), kernel)
    process = InducingEvidence().posterior(prior, 0.2, (X, Y[:, :1]), ())
    gpr = gpflow.models.GPR((X, Y[:, :1]), kernel, noise_variance=0.2)
    for ours, theirs in zip(process.predict(X + 0.1), gpr.predict_f(X + 0.1), strict=True):
        assert_close(ours, theirs)


def test_data_evidence_is_the_bound_of_sgpr(data):
    X, Y = data
    kernel = catalogue.kernels(1)["single"]
    prior = GaussianProcess(gpflow.functions.Zero(), kernel)
    sgpr = gpflow.models.SGPR((X, Y), kernel, X[:M], noise_variance=0.2)
    value = DataEvidence().log_density(prior, 0.2, _tensors(X[:M], Y[:M]), _tensors(X, Y))
    with jitter_of_posteriors():
        bound, predictions = sgpr.elbo(), sgpr.predict_f(X + 0.1)
    assert_close(value, bound)
    process = DataEvidence().posterior(prior, 0.2, (X[:M], None), (X, Y))
    for ours, theirs in zip(process.predict(X + 0.1), predictions, strict=True):
        assert_close(ours, theirs)


def _relaxed_bound(sgpr):
    """The bound of SGPR with ½ Σ log(1 + d) in place of ½ Σ d, d = (k - q)/σ²."""
    X, Y = sgpr.data
    Z, kernel = tf.convert_to_tensor(sgpr.inducing_variable.Z), sgpr.kernel
    solved = tf.linalg.solve(kernel(Z) + 1e-8 * tf.eye(M, dtype=tf.float64), kernel(Z, X))
    q = tf.reduce_sum(kernel(Z, X) * solved, axis=0)
    d = (kernel(X, full_cov=False) - q) / sgpr.likelihood.variance
    return sgpr.elbo() + 0.5 * Y.shape[1] * tf.reduce_sum(d - tf.math.log(1.0 + d))


def test_the_relaxed_bound_has_logarithms_and_is_between_sgpr_and_the_evidence(data):
    X, Y = data
    kernel = catalogue.kernels(1)["single"]
    prior = GaussianProcess(gpflow.functions.Zero(2), kernel)
    sgpr = gpflow.models.SGPR((X, Y), kernel, X[:M], noise_variance=0.2)
    given = sgpr.inducing_variable.Z, None
    variables = [*kernel.trainable_variables, *sgpr.likelihood.trainable_variables]
    variables += sgpr.inducing_variable.trainable_variables
    with tf.GradientTape(persistent=True) as tape:
        expected = _relaxed_bound(sgpr)
        value = DataEvidence(relaxed=True).log_density(
            prior, sgpr.likelihood.variance, given, (X, Y)
        )
    assert_close(value, expected, ITERATIVE)  # jitter: relative here
    for variable in variables:
        assert_close(tape.gradient(value, variable), tape.gradient(expected, variable), ITERATIVE)
    exact = gpflow.models.GPR((X, Y), kernel, noise_variance=0.2).log_marginal_likelihood()
    assert sgpr.elbo() + 1.0 < value < exact


def test_data_evidence_bounds_the_evidence_and_reaches_it_with_all_points(data):
    X, Y = data
    prior, noise = _prior(2, "separate"), tf.constant([0.2, 0.7], tf.float64)
    exact = InducingEvidence().log_density(prior, noise, _tensors(X, Y), ())
    values = [
        float(DataEvidence().log_density(prior, noise, _tensors(X[:m], Y[:m]), _tensors(X, Y)))
        for m in (2, 5, 15, N)
    ]
    assert values == sorted(values)
    assert values[-2] < exact
    assert_close(values[-1], exact, ITERATIVE)


def test_the_bound_of_nearly_exact_observations_is_close_to_the_evidence(rng):
    X, noise = rng.uniform(-2.0, 2.0, size=(40, 2)), 2e-6
    kernel = gpflow.kernels.SquaredExponential(variance=20.0, lengthscales=1.5)
    law = scipy.stats.multivariate_normal(np.zeros(40), kernel(X).numpy() + noise * np.eye(40))
    Y = law.rvs(random_state=rng)[:, None]
    bound = _of_graph(kernel, X, Y, noise)
    # GPflow's jitter, relative to k, is ten times the noise, and would cost four nats a row.
    assert 0.0 <= law.logpdf(Y[:, 0]) - bound < 0.1 * len(X)


def test_posteriors_of_several_outputs_agree_when_all_points_are_inducing(data):
    X, Y = data
    prior, noise = _prior(2, "separate"), tf.constant([0.2, 0.7], tf.float64)
    exact = InducingEvidence().posterior(prior, noise, (X, Y), ())
    sparse = DataEvidence().posterior(prior, noise, (X, None), _tensors(X, Y))
    for ours, theirs in zip(sparse.predict(X - 0.1), exact.predict(X - 0.1), strict=True):
        assert_close(ours, theirs, ITERATIVE)


def test_gradients_of_the_bound_are_those_of_sgpr(data):
    X, Y = data
    Z = X[:M] + 0.01
    kernel = catalogue.kernels(1)["single"]
    sgpr = gpflow.models.SGPR((X, Y), kernel, Z, noise_variance=0.2)
    variables = [*kernel.trainable_variables, *sgpr.likelihood.trainable_variables]
    variables += sgpr.inducing_variable.trainable_variables
    prior = GaussianProcess(gpflow.functions.Zero(2), kernel)
    with tf.GradientTape(persistent=True) as tape:
        theirs = sgpr.elbo()
        given = sgpr.inducing_variable.Z, None
        ours = DataEvidence().log_density(prior, sgpr.likelihood.variance, given, (X, Y))
    for variable in variables:
        expected = tape.gradient(theirs, variable)
        assert_close(tape.gradient(ours, variable), expected, ITERATIVE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("evidence", "count"), [(DataEvidence(), 4), (DataEvidence(), 9), (InducingEvidence(), 9)]
)
def test_gradients_in_observations_and_the_noise_of_each_are_differences(
    data, rng, evidence, count
):
    X, Y = (part[:9] for part in data)
    noise = rng.uniform(0.1, 0.5, size=Y.shape)
    prior = _prior(2, "separate")

    def value(flat):
        noise, Y = tf.unstack(tf.reshape(flat, [2, 9, 2]))
        return evidence.log_density(prior, noise, (X[:count], Y[:count]), (X, Y))

    start = tf.constant(np.concatenate([np.ravel(noise), np.ravel(Y)]))
    with tf.GradientTape() as tape:
        tape.watch(start)
        found = value(start)
    expected = scipy.optimize.approx_fprime(start.numpy(), value, 1e-7)
    assert_close(tape.gradient(found, start), expected, ITERATIVE)


def test_gradients_of_the_inducing_evidence_are_those_of_gpr(data):
    X, Y = (part[:9] for part in data)
    kernel = catalogue.kernels(1)["single"]
    gpr = gpflow.models.GPR((X, Y), kernel, noise_variance=0.2)
    prior = GaussianProcess(gpflow.functions.Zero(2), kernel)
    with tf.GradientTape(persistent=True) as tape:
        theirs = gpr.log_marginal_likelihood()
        ours = InducingEvidence().log_density(prior, gpr.likelihood.variance, (X, Y), (X, Y))
    for variable in gpr.trainable_variables:
        expected = tape.gradient(theirs, variable)
        assert_close(tape.gradient(ours, variable), expected)


@pytest.mark.parametrize(
    "noise", [np.array([0.2, 0.7]), np.linspace(0.1, 1.0, 2 * N).reshape(N, 2)]
)
def test_what_the_bound_lacks_is_the_variance_beyond_the_points_over_twice_the_noise(data, noise):
    X, _ = data
    kernel = gpflow.kernels.SquaredExponential(variance=1.3, lengthscales=0.6)
    K = np.asarray(kernel(X))
    beyond = K - K[:, :M] @ np.linalg.solve(K[:M, :M], K[:M])
    expected = np.mean(np.diag(beyond)[:, None] / (2.0 * noise))
    assert_close(titsias_gap(kernel, noise, X[:M], X), expected, ITERATIVE)
    of_all = np.mean(np.diag(K)[:, None] / (2.0 * noise))
    assert_close(titsias_gap(kernel, noise, X, X), 0.0, ITERATIVE, scale=of_all)

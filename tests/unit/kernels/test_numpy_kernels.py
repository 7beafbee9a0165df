"""Kernels on arrays of NumPy: against GPflow's own."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_gvi.kernels import (
    AdditiveSpectralMixture,
    IntegratedBrownianMotion,
    LogInputs,
    numpy_kernels,
)
from gpflow_gvi.kernels.numpy_kernels import has_numpy_kernel, numpy_kernel
from gpflow_gvi.kernels.numpy_parameters import NumpyParameter, is_known, value_of
from tests.tolerances import ITERATIVE, assert_close

kernels = gpflow.kernels
bounded = gpflow.Parameter(0.7, transform=tfp.bijectors.Sigmoid(np.float64(0.1), np.float64(2.0)))
above = kernels.Matern52()
above.lengthscales = gpflow.Parameter(1.3, transform=gpflow.utilities.positive(lower=0.5))

mixture = AdditiveSpectralMixture([[0.5, 0.2, 1.0]] * 2, [[0.4, 2.0, 1.0]] * 2, [[0.1, 1, 0.0]] * 2)
trend = IntegratedBrownianMotion(0.3, active_dims=[1])
rows, zeros = np.array([[1.0, 0.0, 0.5], [3.0, 1.0, 2.0]]), np.array([-6.0, np.nan, -5.0])

KERNELS = {
    "squared exponential": kernels.SquaredExponential(1.7, [0.4, 1.0, 2.3]),
    "Matern 3/2": kernels.Matern32(1.7, [0.4, 1.0, 2.3]),
    "Matern 5/2": kernels.Matern52(1.7, [0.4, 1.0, 2.3], active_dims=[2, 0, 1]),
    "shared lengthscale": kernels.Matern52(0.6, 1.5),
    "mixture": mixture,
    "mixture of one feature": AdditiveSpectralMixture([[0.5]], [[2.0]], [[0.7]], active_dims=[2]),
    "linear": kernels.Linear([0.3, 1.0, 2.0]),
    "linear, one variance": kernels.Linear(0.3, active_dims=[0, 2]),
    "integrated Brownian motion": trend,
    "active dimensions": kernels.Matern32(active_dims=[2, 0], lengthscales=[0.5, 2.0]),
    "a lower bound": above,
    "constant": kernels.Constant(0.7),
    "logarithms": LogInputs(kernels.Matern32(1.7, [0.4, 1.0, 2.3]) + mixture, rows, zeros),
    "sum": kernels.SquaredExponential(0.3) + mixture + kernels.Linear() + trend,
    "product": kernels.SquaredExponential(0.3) * (mixture + kernels.Matern32()) * kernels.Linear(),
}


@pytest.mark.parametrize("name", KERNELS)
def test_they_are_those_of_gpflow(name, rng):
    X, X2, kernel = rng.normal(size=(30, 3)), rng.normal(size=(4, 3)), KERNELS[name]
    covariances = numpy_kernel(kernel, X, X2)
    assert_close(covariances.variance(), kernel(X, full_cov=False))
    out = np.full((30, 4), np.nan)
    assert covariances.covariance(out) is out
    assert_close(out, kernel(X, X2), ITERATIVE)


def test_what_is_far_away_has_no_covariance_to_speak_of():
    found = numpy_kernel(kernels.SquaredExponential(), np.array([[0.0], [1e6]]))
    assert_close(found.covariance(), np.eye(2))


def test_float32_stays(rng):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        X = rng.normal(size=(9, 2)).astype(np.float32)
        kernel = kernels.Matern32(0.8, [0.5, 1.5])
        found = numpy_kernel(kernel, X)
        assert found.covariance().dtype == found.variance().dtype == np.float32
        assert_close(found.covariance(), kernel(X))


class Own(kernels.SquaredExponential):
    """It may have more than its parameters."""


of_bounded = kernels.Matern52()
of_bounded.variance = bounded


@pytest.mark.parametrize("kernel", [kernels.Cosine(), kernels.Matern12(), Own(), of_bounded])
def test_others_are_evaluated_by_gpflow(kernel):
    of_logs = LogInputs(kernel, rows, zeros)
    for part in (kernel, kernel + kernels.Linear(), kernels.Linear() * kernel, of_logs):
        assert not has_numpy_kernel(part, [3])


def test_images_are_left_to_graphs_and_wide_tables_are_not(rng):
    kernel = kernels.Matern52(lengthscales=rng.uniform(5.0, 50.0, 300)) + kernels.Linear(0.1)
    assert has_numpy_kernel(kernel, [300])
    assert not has_numpy_kernel(kernels.Matern52(), [3, 3, 1])
    X = rng.normal(size=(9, 300))
    assert_close(numpy_kernel(kernel, X).covariance(), kernel(X))


@pytest.fixture(params=[7, 10**6], ids=["blocks of rows", "one block"])
def block_size(request, monkeypatch):
    monkeypatch.setattr(numpy_kernels, "BLOCK_SIZE", request.param)


@pytest.mark.parametrize("decimals", [15, 0], ids=["", "repeated values"])
@pytest.mark.parametrize("name", KERNELS)
def test_derivatives_are_those_of_tensorflow(name, decimals, rng, block_size):
    kernel = KERNELS[name]
    X, X2 = (np.round(rng.normal(size=(N, 3)), decimals) for N in (20, 13))
    G, lower, g = rng.normal(size=(20, 13)), np.tril(rng.normal(size=(20, 20))), rng.normal(size=20)
    assert has_numpy_kernel(kernel, [3])
    of_pairs, of_rows = numpy_kernel(kernel, X, X2), numpy_kernel(kernel, X)
    assert_close(of_pairs.covariance(), kernel(X, X2))
    triangle = np.tril(of_rows.covariance(lower=True))
    assert_close(triangle, np.tril(kernel(X)))

    def check(found, function):
        with tf.GradientTape() as tape:
            value = function()
        variables = [each.unconstrained_variable for each in of_pairs.parameters]
        expected = tape.gradient(value, variables, unconnected_gradients="zero")
        for part, parameter, by_variable in zip(found, of_pairs.parameters, expected, strict=True):
            _, slope = NumpyParameter(parameter).values()
            assert_close(part * slope, by_variable)

    check(of_pairs.gradient(G), lambda: tf.reduce_sum(G * kernel(X, X2)))
    check(of_rows.gradient(lower, lower=True), lambda: tf.reduce_sum(lower * kernel(X)))
    check(of_rows.variance_gradient(g), lambda: tf.reduce_sum(g * kernel(X, full_cov=False)))


LogNormal, Normal = tfp.distributions.LogNormal, tfp.distributions.Normal
positive = gpflow.utilities.positive


@pytest.mark.parametrize("transform", [None, positive(), positive(lower=0.3), positive(base="exp")])
@pytest.mark.parametrize("kind", [None, LogNormal, Normal])
def test_parameters_are_those_of_gpflow(transform, kind):
    prior = kind and kind(np.array([0.5, -0.3]), np.float64(1.4))
    parameter = gpflow.Parameter([0.4, 2.0], transform=transform, prior=prior)
    assert is_known(parameter)
    theta, slope = NumpyParameter(parameter).values()
    log_prior, by_value = NumpyParameter(parameter).log_prior(theta)
    with tf.GradientTape(persistent=True) as tape:
        value, density = tf.reduce_sum(parameter), parameter.log_prior_density()
    variable = parameter.unconstrained_variable
    assert_close(theta, parameter)
    assert_close(slope, tape.gradient(value, variable))
    assert_close(log_prior, density)
    if prior is not None:
        assert_close(by_value * slope, tape.gradient(density, variable))


@pytest.mark.parametrize(
    "parameter",
    [
        bounded,
        gpflow.Parameter(1.0, prior=tfp.distributions.Gamma(np.float64(2), np.float64(1))),
        gpflow.Parameter(1.0, prior=Normal(np.zeros(2), np.ones(2))),
        gpflow.Parameter(1.0, prior=Normal(np.float64(0), np.float64(1)), prior_on="unconstrained"),
    ],
)
def test_other_transforms_and_priors_are_unknown_but_not_the_value(parameter):
    assert not is_known(parameter)
    assert_close(value_of(parameter), parameter)

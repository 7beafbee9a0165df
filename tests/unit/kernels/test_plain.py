"""Kernels on arrays of NumPy: against GPflow's own."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from gpflow_gvi.kernels import AdditiveSpectralMixture, IntegratedBrownianMotion
from gpflow_gvi.kernels.plain import (
    PlainParameter,
    blocks,
    covariance,
    gradient,
    has_gradient,
    is_plain,
    lower_covariance,
    plain,
)
from tests.tolerances import ITERATIVE, assert_close

kernels = gpflow.kernels
bounded = gpflow.Parameter(0.7, transform=tfp.bijectors.Sigmoid(np.float64(0.1), np.float64(2.0)))
below = gpflow.Parameter(1.3, transform=gpflow.utilities.positive(lower=0.5))

mixture = AdditiveSpectralMixture([[0.5, 0.2, 1.0]] * 2, [[0.4, 2.0, 1.0]] * 2, [[0.1, 1, 0.0]] * 2)
trend = IntegratedBrownianMotion(0.3, active_dims=[1])

DIFFERENTIABLE = {
    "squared exponential": kernels.SquaredExponential(1.7, [0.4, 1.0, 2.3]),
    "Matern 3/2": kernels.Matern32(1.7, [0.4, 1.0, 2.3]),
    "Matern 5/2": kernels.Matern52(1.7, [0.4, 1.0, 2.3], active_dims=[2, 0, 1]),
    "shared lengthscale": kernels.Matern52(0.6, 1.5),
    "mixture": mixture,
    "mixture of one feature": AdditiveSpectralMixture([[0.5]], [[2.0]], [[0.7]], active_dims=[2]),
    "linear": kernels.Linear([0.3, 1.0, 2.0]),
    "linear, one variance": kernels.Linear(0.3, active_dims=[0, 2]),
    "integrated Brownian motion": trend,
    "sum": kernels.SquaredExponential(0.3) + mixture + kernels.Linear() + trend,
    "product": kernels.SquaredExponential(0.3) * (mixture + kernels.Matern32()) * kernels.Linear(),
}

KERNELS = {
    **DIFFERENTIABLE,
    **{
        kind.__name__: kind(1.7, [0.4, 1.0, 2.3])
        for kind in (
            kernels.SquaredExponential,
            kernels.Exponential,
            kernels.Matern12,
            kernels.Matern32,
            kernels.Matern52,
        )
    },
    "active dimensions": kernels.Matern32(active_dims=[2, 0], lengthscales=[0.5, 2.0]),
    "one dimension": kernels.SquaredExponential(active_dims=[1]),
    "other transforms": kernels.Matern52(bounded, below),
    "sum": kernels.SquaredExponential(0.3) + kernels.Matern12(active_dims=[1]) + kernels.Matern52(),
    "product": kernels.SquaredExponential(0.3) * (kernels.Matern12(2.0) + kernels.Matern32()),
}


@pytest.mark.parametrize("name", KERNELS)
def test_they_are_those_of_gpflow(name, rng):
    X, kernel = rng.normal(size=(30, 3)), KERNELS[name]
    covariances = plain(kernel, X)
    assert_close(covariances.variance(), kernel(X, full_cov=False))
    rows = np.array([3, 3, 29, 0])
    out = np.full((2, 30), np.nan)
    found = covariances.covariance(rows[[0, 3]], out)
    assert found is out
    assert_close(found, kernel(X[[3, 0]], X), ITERATIVE)
    found = covariances.covariance(rows, np.empty((4, 30)))
    assert_close(found, kernel(X[rows], X), ITERATIVE)


def test_what_is_far_away_has_no_covariance_to_speak_of():
    found = plain(kernels.SquaredExponential(), np.array([[0.0], [1e6]]))
    out = found.covariance(np.arange(2), np.empty((2, 2)))
    assert_close(out, np.eye(2))


def test_float32_stays(rng):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        X = rng.normal(size=(9, 2)).astype(np.float32)
        kernel = kernels.Matern32(0.8, [0.5, 1.5])
        found = plain(kernel, X).covariance(np.arange(9), np.empty((9, 9), np.float32))
        assert plain(kernel, X).variance().dtype == np.float32
    assert_close(found, kernel(X))


class Own(kernels.SquaredExponential):
    """It may have more than its parameters."""


@pytest.mark.parametrize(
    "kernel", [kernels.Cosine(), Own(), Own() + kernels.Matern12(), kernels.White()]
)
def test_others_are_unknown(kernel):
    assert plain(kernel, np.eye(3)) is None


@pytest.mark.parametrize("shape", [(2, 3, 3, 1), (2, 101)])
def test_images_and_wide_tables_are_left_to_graphs(shape):
    assert plain(kernels.SquaredExponential(), np.zeros(shape)) is None


@pytest.fixture(params=[7, 10**6], ids=["blocks of rows", "one block"])
def block_size(request, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_SIZE", request.param)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_are_those_of_tensorflow(name, rng, block_size):
    kernel = DIFFERENTIABLE[name]
    X, X2 = rng.normal(size=(20, 3)), rng.normal(size=(13, 3))
    G, lower, g = rng.normal(size=(20, 13)), np.tril(rng.normal(size=(20, 20))), rng.normal(size=20)
    assert has_gradient(kernel, 3)
    of_pairs, of_rows = plain(kernel, X, X2), plain(kernel, X)
    assert_close(covariance(of_pairs, np.empty((20, 13))), kernel(X, X2))
    triangle = np.tril(lower_covariance(of_rows, np.empty((20, 20))))
    assert_close(triangle, np.tril(kernel(X)))

    def check(found, function):
        with tf.GradientTape() as tape:
            value = function()
        variables = [each.unconstrained_variable for each in of_pairs.parameters]
        expected = tape.gradient(value, variables, unconnected_gradients="zero")
        for part, parameter, by_variable in zip(found, of_pairs.parameters, expected, strict=True):
            _, slope = PlainParameter(parameter).values()
            assert_close(part * slope, by_variable)

    check(gradient(of_pairs, G), lambda: tf.reduce_sum(G * kernel(X, X2)))
    check(gradient(of_rows, lower, lower=True), lambda: tf.reduce_sum(lower * kernel(X)))
    check(of_rows.variance_gradient(g), lambda: tf.reduce_sum(g * kernel(X, full_cov=False)))


of_bounded = kernels.Matern52()
of_bounded.variance = bounded


@pytest.mark.parametrize("kernel", [kernels.Matern12(), kernels.Cosine(), of_bounded])
def test_where_a_slope_a_kernel_or_a_transform_is_unknown_there_are_no_derivatives(kernel):
    assert not has_gradient(kernel, 1)
    assert not has_gradient(kernels.SquaredExponential() + kernel, 1)
    assert has_gradient(kernels.SquaredExponential(), 1)


LogNormal, Normal = tfp.distributions.LogNormal, tfp.distributions.Normal
positive = gpflow.utilities.positive


@pytest.mark.parametrize("transform", [None, positive(), positive(lower=0.3)])
@pytest.mark.parametrize("kind", [None, LogNormal, Normal])
def test_parameters_are_those_of_gpflow(transform, kind):
    prior = kind and kind(np.array([0.5, -0.3]), np.float64(1.4))
    parameter = gpflow.Parameter([0.4, 2.0], transform=transform, prior=prior)
    assert is_plain(parameter)
    theta, slope = PlainParameter(parameter).values()
    log_prior, by_value = PlainParameter(parameter).log_prior(theta)
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
def test_other_transforms_and_priors_are_unknown(parameter):
    assert not is_plain(parameter)

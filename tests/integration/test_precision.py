"""Single precision works throughout and agrees with double precision as far as it reaches."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from tests import catalogue

# The square roots in the Wasserstein distance have steep derivatives where an eigenvalue is nearly
# zero, as it is for these covariances near inducing points; single precision damps them.
STEEP = ("KernelisedSVGP", "SparsePosterior", "FixedSparsePosterior")

DIVERGENCES = (
    "Renyi(0.3)",
    "ReverseKL",
    "Hellinger",
    "GaussianWasserstein(exact)",
    "RegularisedKL",
)


def evaluate(covariance, divergence, loss, dtype):
    """Loss, gradients and predictions of one model, built in a precision."""
    config = gpflow.config.Config(float=dtype, jitter=1e-4)
    with gpflow.config.as_context(config):
        rng = np.random.default_rng(7)
        X = rng.normal(size=(15, 2)).astype(dtype)
        Y = np.sin(X.sum(axis=1, keepdims=True)).astype(dtype)
        kernel = catalogue.kernels(1)["single"]
        Z = catalogue.inducing_points(X[:4] + dtype(0.2))
        P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
        Q = gvi.GaussianProcess(
            gvi.mean_functions.Inducing(kernel, Z, q_mu=np.full((4, 1), 0.3, dtype)),
            catalogue.COVARIANCES[covariance](kernel, Z),
        )
        model = gvi.models.GVI(
            P,
            Q,
            gpflow.likelihoods.Gaussian(0.2),
            catalogue.DIVERGENCES[divergence](),
            num_data=15,
            loss=catalogue.LOSSES[loss](),
        )
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            value = model.training_loss((X, Y))
        gradients = tape.gradient(value, variables)
        tensors = [value, *gradients, *model.predict_f(X), *model.predict_y(X)]
        tensors += [model.posterior().predict_f(X, full_cov=True)[1]]
    assert {tensor.dtype for tensor in tensors} == {tf.as_dtype(dtype)}
    return [np.asarray(tensor, dtype=np.float64) for tensor in tensors]


@pytest.mark.thin(5)
@pytest.mark.parametrize(
    ("divergence", "loss"), [*((name, "Log") for name in DIVERGENCES), ("Renyi(0.3)", "Gamma")]
)
@pytest.mark.parametrize("covariance", catalogue.COVARIANCES)
def test_single_precision_agrees_with_double(covariance, divergence, loss):
    single = evaluate(covariance, divergence, loss, np.float32)
    double = evaluate(covariance, divergence, loss, np.float64)
    for low, high in zip(single, double, strict=True):
        assert np.all(np.isfinite(low))
        if divergence.startswith("GaussianWasserstein") and covariance in STEEP:
            continue
        np.testing.assert_allclose(low, high, rtol=2e-2, atol=2e-3 * (1.0 + np.abs(high).max()))
    # The loss itself, a sum of well-conditioned terms, is good to more digits.
    np.testing.assert_allclose(single[0], double[0], rtol=1e-3)


def test_single_precision_trains():
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32, jitter=1e-5)):
        X = np.linspace(-2.0, 2.0, 60, dtype=np.float32)[:, None]
        Y = np.sin(3.0 * X)
        kernel = gpflow.kernels.SquaredExponential(lengthscales=0.5)
        P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
        Q = gvi.GaussianProcess(
            gvi.mean_functions.Inducing(kernel, X[::6]),
            gvi.covariances.CholeskySVGP(kernel, X[::6]),
        )
        model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.05), num_data=60)
        loss = model.training_loss_closure((X, Y))
        gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables)
        rmse = float(tf.sqrt(tf.reduce_mean((model.predict_f(X)[0] - Y) ** 2)))
    assert rmse < 0.1  # the curve has a standard deviation of 0.7

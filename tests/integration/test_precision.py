"""Single precision works throughout and agrees with double precision as far as it reaches."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from tests import catalogue
from tests.tolerances import ITERATIVE, ROUNDING, assert_close

# The square roots in the Wasserstein distance have steep derivatives where an eigenvalue is nearly
# zero, as it is for these covariances near inducing points; single precision damps them.
STEEP = ("KernelisedSVGP", "SparsePosterior", "FixedSparsePosterior")

SMOOTH = ("Renyi(0.3)", "ReverseKL", "Hellinger", "RegularisedKL")
EXACT = "GaussianWasserstein(exact)"


def evaluate(covariance, dtype):
    """What one model that is built in a precision gives: values by name, gradients, predictions."""
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
        model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.2), num_data=15)
        variables = model.trainable_variables
        with tf.GradientTape(persistent=True) as tape:
            q, p = Q.at(X), P.at(X)  # computed once for all
            values = {
                name: catalogue.DIVERGENCES[name]().compare(q, p) for name in (*SMOOTH, EXACT)
            }
            for name, make in catalogue.LOSSES.items():
                of_rows = make()(model.likelihood, X, q.mean, q.variance, Y)
                values[f"{name} loss"] = tf.reduce_mean(of_rows)
            values["objective"] = model.training_loss((X, Y))
            smooth = tf.add_n([value for name, value in values.items() if name != EXACT])
        zero = tf.UnconnectedGradients.ZERO
        gradients = {
            name: tape.gradient(value, variables, unconnected_gradients=zero)
            for name, value in (("smooth", smooth), (EXACT, values[EXACT]))
        }
        predictions = [*model.predict_f(X), *model.predict_y(X)]
        predictions += [model.posterior().predict_f(X, full_cov=True)[1]]
    tensors = [*values.values(), *predictions, *tf.nest.flatten(gradients)]
    assert {tensor.dtype for tensor in tensors} == {tf.as_dtype(dtype)}
    return tf.nest.map_structure(np.asarray, (values, gradients, predictions))


@pytest.mark.parametrize("covariance", catalogue.covariances_in_turn(quick=["SparsePosterior"]))
def test_single_precision_agrees_with_double(covariance):
    single, double = evaluate(covariance, np.float32), evaluate(covariance, np.float64)
    assert all(np.all(np.isfinite(part)) for part in tf.nest.flatten(single))
    # Sums of well-conditioned terms are good to more digits than their gradients.
    for name, value in double[0].items():
        assert_close(single[0][name], value, ITERATIVE if name == EXACT else ROUNDING)
    names = ("smooth",) if covariance in STEEP else ("smooth", EXACT)
    for low, high in zip(
        [*tf.nest.flatten([single[1][name] for name in names]), *single[2]],
        [*tf.nest.flatten([double[1][name] for name in names]), *double[2]],
        strict=True,
    ):
        # A gradient that vanishes is the difference of terms near one.
        assert_close(low, high, ITERATIVE, scale=1.0 + np.abs(high).max())

"""Gradients of each divergence and each loss in all that Q trains, against central differences.

The objective is N times a loss plus a weight times a divergence, and its gradient is that sum of
theirs. So each covariance is tried with every divergence and with every loss, but not with each
combination of the two; the sum itself is one more function that is tried.
"""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from tests import catalogue
from tests.tolerances import ITERATIVE, assert_close

STEP = 1e-5


def build(covariance, J):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(6, 2))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(6, J))
    kernel = catalogue.kernels(J)["separate" if J > 1 else "single"]
    Z = catalogue.inducing_points(X[:3] + 0.3)
    P = gvi.GaussianProcess(gpflow.functions.Constant(np.full(J, 0.2)), kernel)
    mean = gvi.mean_functions.Inducing(kernel, Z, mean_function=P.mean_function)
    Q = gvi.GaussianProcess(mean, catalogue.COVARIANCES[covariance](kernel, Z))
    model = gvi.models.PGVI(
        P, Q, gpflow.likelihoods.Gaussian(0.3), num_data=20, divergence_weight=0.7
    )
    # Away from the start, where Q may equal P: a minimum hides the sign of a derivative, and the
    # frozen factor of FixedSparsePosterior leaves its region on one side of it.
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * rng.normal(size=variable.shape))
    for part in Q.kernel.submodules:
        if isinstance(part, gpflow.kernels.SquaredExponential):
            part.variance.assign(0.6 * part.variance)
    return model, (X, Y)


def evaluate(model, data, divergences):
    """Every function by its name, all from the same moments of Q and P."""
    q, p = (process.at(data[0]) for process in (model.variational, model.regulariser))
    values = {name: make().compare(q, p) for name, make in divergences.items()}
    for name, make in catalogue.LOSSES.items():
        of_rows = make()(model.likelihood, data[0], q.mean, q.variance, data[1])
        values[f"{name} loss"] = tf.reduce_sum(of_rows)
    values["objective"] = model.training_loss(data)
    return values


def assert_derivative(covariance, J):
    """Along a random direction, of a sum in which each function has a slope of about one."""
    model, data = build(covariance, J)
    divergences = {
        name: make
        for name, make in catalogue.DIVERGENCES.items()
        if name != "InducingKL" or covariance in catalogue.FINITE_KL
    }
    variables = model.trainable_variables
    rng = np.random.default_rng(12)
    directions = [rng.normal(size=variable.shape) for variable in variables]

    def at(step):
        for variable, direction in zip(variables, directions, strict=True):
            variable.assign_add(step * direction)
        return evaluate(model, data, divergences)

    above, below = at(STEP), at(-2.0 * STEP)
    slopes = {name: float(above[name] - below[name]) / (2.0 * STEP) for name in above}
    with tf.GradientTape() as tape:
        values = at(STEP)
        scaled = {name: value / (abs(slopes[name]) + 1e-3) for name, value in values.items()}
        total = tf.add_n(list(scaled.values()))
    gradients = tape.gradient(total, variables)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)
    slope = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    expected = sum(slope / (abs(slope) + 1e-3) for slope in slopes.values())
    assert_close(slope, expected, ITERATIVE)


@pytest.mark.parametrize("covariance", catalogue.covariances_in_turn(quick=["Tempered"]))
def test_gradients_are_the_derivatives(covariance):
    assert_derivative(covariance, J=1)


def test_gradients_are_the_derivatives_with_several_outputs():
    assert_derivative("CholeskySVGP", J=2)

"""Gradients of every loss × divergence × covariance are finite and are derivatives."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from tests import catalogue

STEP = 1e-5

EVERY = [
    (covariance, divergence, loss)
    for covariance in catalogue.COVARIANCES
    for divergence in catalogue.DIVERGENCES
    for loss in catalogue.LOSSES
    if divergence != "InducingKL" or covariance in catalogue.FINITE_KL
]
# By default each pair of parts meets at least once: the three indices are taken modulo the losses.
SOME = [case for index, case in enumerate(EVERY) if index % 3 == 0 or case[0] == "CholeskySVGP"]


def build(covariance, divergence, loss, J):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(6, 2))
    Y = np.sin(X.sum(axis=1, keepdims=True)) + 0.1 * rng.normal(size=(6, J))
    kernel = catalogue.kernels(J)["separate" if J > 1 else "single"]
    Z = catalogue.inducing_points(X[:3] + 0.3)
    P = gvi.GaussianProcess(gpflow.functions.Constant(np.full(J, 0.2)), kernel)
    mean = gvi.mean_functions.Inducing(kernel, Z, mean_function=P.mean_function)
    Q = gvi.GaussianProcess(mean, catalogue.COVARIANCES[covariance](kernel, Z))
    model = gvi.models.GVI(
        P,
        Q,
        gpflow.likelihoods.Gaussian(0.3),
        catalogue.DIVERGENCES[divergence](),
        num_data=20,
        loss=catalogue.LOSSES[loss](),
        divergence_weight=0.7,
    )
    # Away from the start, where Q may equal P: a minimum hides the sign of a derivative, and the
    # frozen factor of FixedSparsePosterior leaves its region on one side of it.
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * rng.normal(size=variable.shape))
    for part in Q.kernel.submodules:
        if isinstance(part, gpflow.kernels.SquaredExponential):
            part.variance.assign(0.6 * part.variance)
    return model, (X, Y)


def check(covariance, divergence, loss, J):
    model, data = build(covariance, divergence, loss, J)
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        value = model.training_loss(data)
    gradients = tape.gradient(value, variables)
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)

    rng = np.random.default_rng(12)
    directions = [rng.normal(size=variable.shape) for variable in variables]
    slope = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    sides = []
    for sign in (1.0, -2.0):  # to one side of the point, and from there to the other
        for variable, direction in zip(variables, directions, strict=True):
            variable.assign_add(sign * STEP * direction)
        sides.append(float(model.training_loss(data)))
    assert slope == pytest.approx((sides[0] - sides[1]) / (2.0 * STEP), rel=2e-5, abs=1e-4)


def _cases(cases):
    return pytest.mark.parametrize(
        ("covariance", "divergence", "loss"), cases, ids=["-".join(case) for case in cases]
    )


@pytest.mark.thin(7)
@_cases(SOME)
def test_gradient_is_the_derivative(covariance, divergence, loss):
    check(covariance, divergence, loss, J=1)


@pytest.mark.thin(7)
@pytest.mark.parametrize("divergence", catalogue.DIVERGENCES)
def test_gradient_is_the_derivative_with_several_outputs(divergence):
    check("CholeskySVGP", divergence, "Log", J=2)


@pytest.mark.slow
@_cases([case for case in EVERY if case not in SOME])
def test_gradient_is_the_derivative_for_the_rest(covariance, divergence, loss):
    check(covariance, divergence, loss, J=1)

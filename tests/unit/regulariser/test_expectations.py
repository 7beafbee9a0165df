"""Predictive densities of labels, by points of f."""

from __future__ import annotations

import gpflow
import numpy as np
import scipy.special

from gpflow_gvi.regulariser import expectations
from tests.tolerances import assert_close


def test_two_classes_of_a_softmax_have_the_density_of_their_difference(rng):
    """f_1 - f_0 is Gaussian, and the probability of class 1 its logistic function."""
    N = 40
    mean, variance = 2.0 * rng.normal(size=(N, 2)), rng.uniform(0.01, 2.0, size=(N, 2))
    Y = rng.integers(2, size=(N, 1))
    softmax = gpflow.likelihoods.Softmax(2)
    found = expectations.log_predictive_densities(softmax, np.zeros((N, 1)), mean, variance, Y)
    points, weights = np.polynomial.hermite_e.hermegauss(60)
    f = (mean[:, 1] - mean[:, 0])[:, None] + np.sqrt(variance.sum(axis=1))[:, None] * points
    p = scipy.special.expit(f) @ (weights / weights.sum())
    np.testing.assert_allclose(np.exp(found), np.where(Y[:, 0] == 1, p, 1.0 - p), atol=2e-3)


def test_densities_of_a_softmax_are_those_of_gpflow_at_the_same_points(monkeypatch, rng):
    monkeypatch.setattr(expectations, "MAX_ROWS_AT_ONCE", 15)
    N, J = 40, 4
    mean, variance = 30.0 * rng.normal(size=(N, J)), rng.uniform(0.0, 9.0, size=(N, J))
    rows = np.zeros((N, 1)), mean, variance, rng.integers(J, size=(N, 1))
    softmax = gpflow.likelihoods.Softmax(J)
    found = expectations.log_predictive_densities(softmax, *rows)
    assert_close(found, expectations.log_predictive_density(softmax, *rows))

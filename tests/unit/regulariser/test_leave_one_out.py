"""Predictions of each observation by the others, against exact regressions without it."""

from __future__ import annotations

import functools

import gpflow
import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi._core import row_blocks
from gpflow_gvi.regulariser.leave_one_out import leave_one_out, leave_one_out_of_all
from tests.references import jitter_of_posteriors
from tests.tolerances import ITERATIVE, assert_close


@pytest.mark.parametrize("size", [4, 9], ids=["blocks", "one_block"])
@pytest.mark.parametrize("noise", ["one", "of_outputs", "of_rows"])
def test_it_is_the_regression_on_the_others(monkeypatch, noise, size, rng):
    monkeypatch.setattr(row_blocks, "slices", functools.partial(row_blocks.slices, size=size))
    X, Y = rng.uniform(-2.0, 2.0, size=(9, 2)), rng.normal(size=(9, 2))
    sigma2 = {
        "one": np.full((9, 2), 0.3),
        "of_outputs": np.tile([0.3, 0.05], (9, 1)),
        "of_rows": rng.uniform(0.02, 0.5, size=(9, 2)),
    }[noise]
    given = {"one": 0.3, "of_outputs": sigma2[0], "of_rows": sigma2}[noise]
    kernel, m = gpflow.kernels.Matern32(1.5, 0.7), 0.4
    prior = gvi.GaussianProcess(gpflow.functions.Constant(m), kernel)
    expected = np.empty([2, 9, 2])
    K = kernel(X).numpy()
    for i in range(9):
        rest = np.arange(9) != i
        for j in range(2):
            weights = np.linalg.solve(K[np.ix_(rest, rest)] + np.diag(sigma2[rest, j]), K[rest, i])
            left = K[i, i] - weights @ K[rest, i] + sigma2[i, j]
            expected[:, i, j] = m + weights @ (Y[rest, j] - m), left
    found = leave_one_out(prior, given, X, (X, Y))
    assert_close(found, expected, ITERATIVE)  # K_ZZ has jitter
    exactly = leave_one_out_of_all(prior, given, (X, Y))
    assert_close(exactly, expected)


def test_without_inducing_points_numpy_has_to_know_the_kernel(rng):
    X = rng.normal(size=(4, 1))
    noise, data = np.full((4, 1), 0.1), (X, np.sin(X))
    for kernel in (gpflow.kernels.Cosine(), gpflow.kernels.Linear(1e300)):
        prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
        assert leave_one_out_of_all(prior, noise, data) is None


def test_with_few_inducing_points_it_is_the_sparse_regression_on_the_others(rng):
    X = rng.uniform(-2.0, 2.0, size=(20, 1))
    Y = np.sin(X) + 0.1 * rng.normal(size=X.shape)
    Z, kernel = np.linspace(-2.0, 2.0, 4)[:, None], gpflow.kernels.Matern32()
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    mean, variance = leave_one_out(prior, 0.02, Z, (X, Y))
    for i in range(0, 20, 6):
        rest = np.arange(20) != i
        sgpr = gpflow.models.SGPR((X[rest], Y[rest]), kernel, Z, noise_variance=0.02)
        with jitter_of_posteriors():
            expected = sgpr.predict_y(X[i : i + 1])
        assert_close(mean[i], expected[0][0])
        assert_close(variance[i], expected[1][0])


def test_an_observation_without_noise_is_predicted_by_the_others(rng):
    X, kernel = np.array([[0.0], [1.0], [2.0]]), gpflow.kernels.SquaredExponential()
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    Y = np.array([[0.0], [5.0], [0.0]])
    mean, variance = leave_one_out(prior, 1e-9, X, (X, Y))
    assert np.all(np.isfinite(mean))
    assert_close(float(mean[1, 0]), 0.0, ITERATIVE, scale=5.0)
    k = kernel(X).numpy()
    expected = k[1, 1] - k[1, [0, 2]] @ np.linalg.solve(k[::2, ::2], k[1, [0, 2]])
    assert_close(float(variance[1, 0]), expected, ITERATIVE)


@pytest.mark.parametrize("noise", ["one", "of_rows"])
def test_rows_of_equal_inputs_are_left_out_together(noise, rng):
    X = rng.uniform(-2.0, 2.0, size=(5, 2))[[0, 1, 2, 3, 4, 1, 3, 3]]
    groups, Y = np.array([0, 1, 2, 3, 4, 1, 3, 3]), rng.normal(size=(8, 1))
    sigma2 = np.full((8, 1), 0.1) if noise == "one" else rng.uniform(0.02, 0.5, size=(8, 1))
    kernel = gpflow.kernels.Matern32(1.5, 0.7)
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    expected = np.empty([2, 8, 1])
    K = kernel(X).numpy()
    for i in range(8):
        rest = groups != groups[i]
        weights = np.linalg.solve(K[np.ix_(rest, rest)] + np.diag(sigma2[rest, 0]), K[rest, i])
        left = K[i, i] - weights @ K[rest, i] + sigma2[i, 0]
        expected[:, i, 0] = weights @ Y[rest, 0], left
    assert_close(leave_one_out(prior, sigma2, X[:5], (X, Y), groups), expected, ITERATIVE)
    assert_close(leave_one_out_of_all(prior, sigma2, (X, Y), groups), expected)

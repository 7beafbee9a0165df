"""Kernels on arrays of NumPy: against GPflow's own."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow_probability as tfp

from gpflow_gvi.kernels.plain import plain

kernels = gpflow.kernels
bounded = gpflow.Parameter(0.7, transform=tfp.bijectors.Sigmoid(np.float64(0.1), np.float64(2.0)))
below = gpflow.Parameter(1.3, transform=gpflow.utilities.positive(lower=0.5))

KERNELS = {
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
    np.testing.assert_allclose(covariances.variance(), kernel(X, full_cov=False), rtol=1e-12)
    rows = np.array([3, 3, 29, 0])
    for of, others in ((covariances, X), (covariances.of_rows(np.arange(30)[::-2]), X[::-2])):
        out = np.full((2, len(others)), np.nan)
        found = of.covariance(rows[[0, 3]], out)
        assert found is out
        np.testing.assert_allclose(found, kernel(others[[3, 0]], others), rtol=1e-7, atol=1e-12)
    found = covariances.covariance(rows, np.empty((4, 30)))
    np.testing.assert_allclose(found, kernel(X[rows], X), rtol=1e-7, atol=1e-7)


def test_what_is_far_away_has_no_covariance_to_speak_of():
    found = plain(kernels.SquaredExponential(), np.array([[0.0], [1e6]]))
    out = found.covariance(np.arange(2), np.empty((2, 2)))
    np.testing.assert_allclose(out, np.eye(2), atol=1e-30)


def test_float32_stays(rng):
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        X = rng.normal(size=(9, 2)).astype(np.float32)
        kernel = kernels.Matern32(0.8, [0.5, 1.5])
        found = plain(kernel, X).covariance(np.arange(9), np.empty((9, 9), np.float32))
        assert plain(kernel, X).variance().dtype == np.float32
    np.testing.assert_allclose(found, kernel(X), atol=1e-3)


class Own(kernels.SquaredExponential):
    """It may have more than its parameters."""


@pytest.mark.parametrize(
    "kernel", [kernels.Linear(), Own(), Own() + kernels.Matern12(), kernels.White()]
)
def test_others_are_unknown(kernel):
    assert plain(kernel, np.eye(3)) is None


@pytest.mark.parametrize("shape", [(2, 3, 3, 1), (2, 60)])
def test_images_and_wide_tables_are_left_to_graphs(shape):
    assert plain(kernels.SquaredExponential(), np.zeros(shape)) is None

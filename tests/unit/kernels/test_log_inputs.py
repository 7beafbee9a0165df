"""Kernels of the logarithms of inputs: by taking the logarithms before."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.kernels import LogInputs
from tests.tolerances import assert_close

ZEROS = np.array([-2.0, np.nan, 0.5])


def _rows(rng, count=9):
    return np.nan_to_num(ZEROS) + rng.lognormal(sigma=1.5, size=(count, 3)) * [1.0, -1.0, 1.0]


def _with_logarithms(rows, X):
    """X with the logarithms of its first and last column, in standard units of `rows`."""
    found = X.copy()
    for d in (0, 2):
        of_rows = np.log(rows[:, d] - ZEROS[d])
        found[:, d] = (np.log(X[:, d] - ZEROS[d]) - of_rows.mean()) / of_rows.std()
    return found


def test_is_the_base_kernel_of_logarithms(rng):
    rows = _rows(rng)
    X, X2 = rows[2:7], rows[:4]
    base = gpflow.kernels.Matern52(1.3, [0.5, 1.0, 2.0])
    kernel = LogInputs(base, rows, ZEROS)
    logs, logs2 = _with_logarithms(rows, X), _with_logarithms(rows, X2)
    assert_close(kernel.features(X), logs)
    assert_close(kernel.numpy_features(X), logs)
    assert_close(kernel(X, X2), base(logs, logs2))
    assert_close(kernel(X), base(logs))
    assert_close(kernel(X, full_cov=False), base(logs, full_cov=False))


def test_below_the_least_value_it_is_the_tangent(rng):
    rows = _rows(rng)
    logs = np.log(rows[:, 0] - ZEROS[0])
    least = np.exp(logs.min())
    X = np.tile(rows[:1], [3, 1])
    X[:, 0] = ZEROS[0] + least + np.array([-1e-3, -least, -9.0])
    h = LogInputs(gpflow.kernels.Linear(), rows, ZEROS).features(X)[:, 0]
    tangent = np.log(least) + np.array([-1e-3, -least, -9.0]) / least
    assert_close(h, (tangent - logs.mean()) / logs.std())


def test_one_value_and_float32(rng):
    X = np.column_stack([np.full(5, 3.0), rng.lognormal(size=5)]).astype(np.float32)
    h = LogInputs(gpflow.kernels.Linear(), X, np.zeros(2)).numpy_features(X)
    assert h.dtype == np.float32
    assert_close(h[:, 0], np.zeros(5))
    assert_close(h[:, 1].std(), 1.0)


def test_saved_and_loaded(rng, tmp_path):
    rows = _rows(rng)
    kernel = LogInputs(gpflow.kernels.SquaredExponential(), rows, ZEROS)
    gvi.save(kernel, tmp_path / "kernel")
    assert_close(gvi.load(tmp_path / "kernel")(rows), kernel(rows))


def test_a_column_without_a_value_above_its_zero_is_refused():
    with pytest.raises(ValueError, match="column 1 of X has values that are not above"):
        LogInputs(gpflow.kernels.Linear(), np.array([[1.0, 1.0], [2.0, 0.0]]), np.zeros(2))

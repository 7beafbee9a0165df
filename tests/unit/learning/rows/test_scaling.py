"""Standard units: against scikit-learn, and there and back."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_gvi.learning.rows.scaling import Scaling


@pytest.fixture
def values(rng):
    return np.column_stack(
        [1e6 + rng.normal(size=50), np.full(50, 0.1), 1e-5 * rng.normal(size=50)]
    )


def test_is_that_of_scikit_learn(values):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    expected = preprocessing.StandardScaler().fit_transform(values)
    np.testing.assert_allclose(Scaling.of(values).standard(values), expected, atol=1e-8)


def test_a_constant_column_becomes_zero(values):
    np.testing.assert_allclose(Scaling.of(values).standard(values)[:, 1], 0.0, atol=1e-15)


@pytest.mark.parametrize("make", [Scaling.of, Scaling.none])
def test_there_and_back(values, make):
    scaling = make(values)
    np.testing.assert_allclose(scaling.original(scaling.standard(values)), values, rtol=1e-12)


def test_none_changes_nothing(values):
    np.testing.assert_array_equal(Scaling.none(values).standard(values), values)

"""Standard units: against scikit-learn, and there and back."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_gvi.learning.rows.scaling import Scaling
from tests.tolerances import assert_close


@pytest.fixture
def values(rng):
    return np.column_stack(
        [1e6 + rng.normal(size=50), np.full(50, 0.1), 1e-5 * rng.normal(size=50)]
    )


def test_is_that_of_scikit_learn(values):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    expected = preprocessing.StandardScaler().fit_transform(values)
    assert_close(Scaling.of(values).standard(values), expected)


def test_the_units_of_a_column_do_not_depend_on_what_stands_beside_it(values):
    """To the last digit, so that columns which say nothing change nothing."""
    alone = [Scaling.of(column[:, None]) for column in values.T]
    for name in ("shift", "scale"):
        found = getattr(Scaling.of(values), name)
        np.testing.assert_array_equal(found, [getattr(each, name)[0] for each in alone])


def test_a_constant_column_becomes_zero(values):
    assert_close(Scaling.of(values).standard(values)[:, 1], 0.0, scale=1.0)


@pytest.mark.parametrize("make", [Scaling.of, Scaling.none])
def test_there_and_back(values, make):
    scaling = make(values)
    assert_close(scaling.original(scaling.standard(values)), values)


def test_none_changes_nothing(values):
    np.testing.assert_array_equal(Scaling.none(values).standard(values), values)

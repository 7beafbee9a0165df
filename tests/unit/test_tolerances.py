"""The comparisons of all tests: they fail where they should."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import (
    ITERATIVE,
    ROUNDING,
    STANDARD_ERRORS,
    assert_close,
    assert_differ,
    assert_estimates,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tolerance", [ROUNDING, ITERATIVE])
def test_errors_are_relative_to_the_largest_value_or_to_a_given_scale(tolerance, dtype):
    expected = np.array([1e-3, 1e3])
    allowed = tolerance.of(dtype) * 1e3
    near, far = (np.array([1e-3 + part * allowed, 1e3], dtype) for part in (0.9, 1.2))
    assert_close(near, expected, tolerance)
    for found, scale in ((far, None), (near, expected)):
        with pytest.raises(AssertionError, match="1 of 2 values"):
            assert_close(found, expected, tolerance, scale=scale)


def test_precision_is_that_of_what_is_found_or_is_given():
    off = 1.0 + 0.5 * ROUNDING.float32
    assert_close(np.float32(off), 1.0)
    assert_close(off, 1.0, precision=np.float32)
    with pytest.raises(AssertionError):
        assert_close(off, np.float32(1.0))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (1e-300, 0.0),
        (np.nan, 1.0),
        (1.0, np.nan),
        (np.inf, 1.0),
        (-np.inf, np.inf),
        ([[1.0, 2.0]], [[[1.0, 2.0]]]),
    ],
)
def test_zeros_nan_infinities_and_shapes_are_not_forgiven(found, expected):
    with pytest.raises(AssertionError):
        assert_close(found, expected, ITERATIVE)


def test_what_is_the_same_is_close():
    for same in (0.0, np.nan, np.inf, [1.0, np.nan, -np.inf], np.empty((0, 3))):
        assert_close(same, same)
    assert_close(np.ones((2, 3)), 1.0)


def test_what_differs_is_closer_under_no_tolerance():
    for dtype in (np.float32, np.float64):
        other = np.array([1.0, 2.0], dtype)
        assert_differ(other * dtype(1.0 + 1.1 * ITERATIVE.of(dtype)), other)
        with pytest.raises(AssertionError, match="differ by"):
            assert_differ(other * dtype(1.0 + 0.9 * ITERATIVE.of(dtype)), other)


@pytest.mark.parametrize("estimate", [1.0 + 0.11 * STANDARD_ERRORS, np.nan])
def test_an_estimate_too_many_standard_errors_away_is_refused(estimate):
    assert_estimates(1.0 + 0.09 * STANDARD_ERRORS, 1.0, 0.1)
    with pytest.raises(AssertionError, match="standard errors away"):
        assert_estimates([1.0, estimate], 1.0, 0.1)

"""Repeats, folds, the grid of y and gross values."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_gvi.learning.row_facts import (
    folds_of,
    gross_rows,
    grouping_column,
    groups_of,
    left_out_together,
    repeats,
    spacing,
)
from tests.tolerances import assert_close


def test_rows_of_equal_inputs_are_one_group_up_to_rounding(rng):
    X = rng.normal(size=(20, 3)) * [1.0, 1e6, 1e-6]
    order = rng.permutation(40)
    rows = np.r_[X, X * (1.0 + 1e-15)][order]
    groups = groups_of(rows)
    assert len(np.unique(groups)) == 20
    for i, j in np.ndindex(40, 40):
        assert (groups[i] == groups[j]) == (order[i] % 20 == order[j] % 20)


def test_rows_that_differ_in_one_column_are_two_groups():
    X = np.array([[1.0, 2.0], [1.0, 2.001], [1.0, 2.0], [1.0 + 1e-6, 2.0]])
    assert len(np.unique(groups_of(X))) == 3


def test_folds_have_one_size_and_a_group_is_in_one_of_them(rng):
    X = np.repeat(rng.normal(size=(20, 3)), 3, axis=0)
    groups = groups_of(X)
    fold = folds_of(groups, 5, seed=0)
    np.testing.assert_array_equal(np.bincount(fold), 12)
    np.testing.assert_array_equal(fold[::3], fold[1::3])
    np.testing.assert_array_equal(fold[::3], fold[2::3])
    assert not np.array_equal(fold, folds_of(groups, 5, seed=1))
    with pytest.raises(ValueError, match=r"X has 4 rows, .* 5 folds.* predictor=None"):
        folds_of(np.array([0, 1, 2, 3, 3]), 5, seed=0)


def test_copies_count_once(rng):
    X, Y = rng.normal(size=(10, 2)), rng.normal(size=(10, 1))
    repeated, kept = repeats(np.r_[X, X[:4]], np.r_[Y, Y[:4]])
    assert repeated == 4
    np.testing.assert_array_equal(kept, np.arange(10))


def test_observations_of_equal_inputs_that_differ_are_replicates(rng):
    X, y = np.repeat(np.arange(5.0), 6)[:, None], rng.integers(0, 3, size=(30, 1)).astype(float)
    repeated, kept = repeats(X, y)
    assert repeated == 25
    assert len(kept) == 30  # also those that agree: they lie on a grid


def test_whole_numbers_of_many_values_agree_by_chance_where_inputs_are_few(rng):
    """As ages of two sexes do: most of their values are distinct, but they are no copies."""
    x = np.repeat([[0.0], [1.0]], 30, axis=0)
    age = rng.integers(10, 80, size=(60, 1)).astype(float)
    assert len(np.unique(np.column_stack([x, age]), axis=0)) < 60
    assert len(repeats(x, age)[1]) == 60


@pytest.mark.parametrize("times", [1, 3])
def test_values_that_several_inputs_have_in_common_are_no_copies(times, rng):
    """As zeros, limits and logarithms of counts are; a whole table that repeats counts once."""
    x = rng.integers(0, 3, size=(200, 2)).astype(float)
    y = np.where(rng.uniform(size=(200, 1)) < 0.5, 0.0, rng.normal(size=(200, 1)))
    _, found = repeats(np.tile(x, (times, 1)), np.tile(y, (times, 1)))
    rows = np.column_stack([x, y])
    kept = np.tile(rows, (times, 1))[found]
    for each, count in zip(*np.unique(rows, axis=0, return_counts=True), strict=True):
        assert np.sum(np.all(kept == each, axis=1)) == count


def test_beside_a_value_in_common_others_are_copies(rng):
    X, Y = np.repeat([[0.0], [1.0]], 4, axis=0), rng.normal(size=(8, 1))
    Y[[0, 1, 4]] = 0.0
    Y[3] = Y[2]
    np.testing.assert_array_equal(repeats(X, Y)[1], [0, 1, 2, 4, 5, 6, 7])


def test_missing_observations_hide_no_copies_among_the_others(rng):
    X, Y = np.repeat(rng.normal(size=(5, 1)), 2, axis=0), rng.normal(size=(10, 1))
    Y[1], Y[3], Y[6] = Y[0], Y[2], np.nan
    kept = repeats(X, Y)[1]
    np.testing.assert_array_equal(kept[kept < 6], [0, 2, 4, 5])


def test_among_many_real_values_copies_are_found(rng):
    """Some are so close that all others look like multiples of their distance."""
    x, y = np.zeros((200_000, 1)), rng.normal(size=(200_000, 1))
    y[-5:] = y[:5]
    np.testing.assert_array_equal(repeats(x, y)[1], np.arange(199_995))


def test_rows_of_known_inputs_are_left_out_alone(rng):
    """As of categories, which repeat more often than there are of them; copies do not."""
    N = 49
    for copies in (1, 2, 6):
        X = rng.normal(size=(N, 2))[np.arange(N) // copies]
        groups = left_out_together(X)
        np.testing.assert_array_equal(groups == groups[:, None], X[:, 0] == X[:, :1])
    of_categories = rng.integers(0, 2, size=(N, 2)).astype(float)
    assert len(np.unique(left_out_together(of_categories))) == N


@pytest.mark.parametrize("num_copies", [2, 6])
def test_levels_are_known_where_each_has_several_rows(num_copies):
    dummies = np.repeat(np.eye(15), num_copies, axis=0)
    groups = left_out_together(dummies)
    assert len(np.unique(groups)) == (len(dummies) if num_copies > 5 else 15)
    measured = np.random.default_rng(0).normal(size=(15, 1))
    assert len(np.unique(left_out_together(np.repeat(measured, 6, axis=0)))) == 15


def test_whole_numbers_that_are_a_function_of_the_inputs_count_once(rng):
    X = np.repeat(rng.normal(size=(10, 2)), 3, axis=0)
    y = np.repeat(rng.integers(0, 4, size=10), 3)[:, None].astype(float)
    assert len(repeats(X, y)[1]) == 10


@pytest.mark.parametrize("step", [1.0, 0.1, 0.25, 3e-7, 1e9])
@pytest.mark.parametrize("shift", [0.0, -17.0])
def test_the_grid_of_rounded_values_is_found(step, shift, rng):
    y = step * (np.round(rng.normal(0.0, 4.0, size=300)) + shift)
    assert_close(spacing(y), step)


def test_real_values_are_on_no_grid(rng):
    assert spacing(rng.normal(size=300)) == np.inf
    assert spacing(np.repeat(rng.normal(size=20), 15)) == np.inf  # values that repeat
    assert spacing(np.ones(5)) == np.inf


@pytest.mark.parametrize("N", [20, 1000])
@pytest.mark.parametrize("law", ["normal", "lognormal", "student", "counts"])
def test_values_of_a_law_with_a_tail_are_not_gross(law, N, rng):
    draw = {
        "normal": lambda: rng.normal(size=(N, 2)),
        "lognormal": lambda: rng.lognormal(sigma=1.0, size=(N, 2)),
        "student": lambda: rng.standard_t(3.0, size=(N, 2)),
        "counts": lambda: rng.poisson(0.1, size=(N, 2)).astype(float),
    }[law]
    assert sum(len(gross_rows(draw())) for _ in range(20)) <= 1


@pytest.mark.parametrize("N", [20, 1000])
def test_a_slip_of_the_pen_is_gross(N, rng):
    Y = rng.normal(size=(N, 2))
    Y[7, 1] = -50.0
    np.testing.assert_array_equal(gross_rows(Y), [7])


def test_slips_of_several_sizes_are_all_gross(rng):
    Y = rng.normal(size=(30, 1))
    Y[[3, 8], 0] = 60.0, 2e6
    np.testing.assert_array_equal(gross_rows(Y), [3, 8])


@pytest.mark.parametrize("y", [np.exp(3.0 * np.arange(8)), np.array([1.0, 1.01, 2.0])])
def test_growth_and_few_rows_have_no_gross_value(y):
    assert not len(gross_rows(y[:, None]))


def _panel(rng, effect):
    """Forty subjects with five rows each, numbered in the second column: [200, 3], [200, 1]."""
    subject = rng.permutation(np.repeat(np.arange(40), 5))
    X = rng.normal(size=(200, 3))
    X[:, 0], X[:, 1] = np.round(X[:, 0], 1), subject / np.std(subject)
    Y = np.sin(X[:, :1]) + X[:, 2:3] + 0.3 * rng.normal(size=(200, 1))
    return X, Y + effect * rng.normal(size=40)[subject, None]


def test_a_column_that_numbers_subjects_is_found_by_their_effects(rng):
    found = [grouping_column(*_panel(rng, 0.6), 0.01, 0.2) for _ in range(50)]
    assert sum(column == 1 for column in found) >= 48
    several = [_panel(rng, 0.6) for _ in range(5)]
    for X, Y in several:
        assert grouping_column(X, np.c_[Y, 2.0 * Y + 0.1 * X[:, 2:3]], 0.01, 0.2) == 1


def test_a_smooth_function_of_rounded_columns_names_no_groups(rng):
    """The level of the test is that of its Monte Carlo, up to what neighbours have in common."""
    found = [grouping_column(*_panel(rng, 0.0), 0.05, 0.2) for _ in range(200)]
    assert np.mean([column is not None for column in found]) < 0.15


def test_repeated_rows_are_no_groups(rng):
    """Two rows of equal inputs differ by noise alone, and those of the next values in all else."""
    X = np.repeat(rng.normal(size=(100, 3)), 2, axis=0)
    Y = np.sin(X @ np.ones([3, 1])) + 0.1 * rng.normal(size=(200, 1))
    assert grouping_column(X, Y, 0.01, 0.2) is None


@pytest.mark.parametrize(
    "values", [np.zeros(30), np.arange(30.0), np.r_[np.zeros(15), np.ones(15)]]
)
def test_columns_of_no_groups_are_passed_over(values, rng):
    X = np.c_[values, values] / max(np.std(values), 1.0)
    assert grouping_column(X, rng.normal(size=(30, 1)), 0.01, 0.2) is None

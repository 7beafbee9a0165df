"""The split of the rows: what is told of data that cannot be learned from as they are."""

from __future__ import annotations

import dataclasses
import warnings

import gpflow
import numpy as np
import pytest
from gpflow.likelihoods import Softmax

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.learning.rows.split import Split
from gpflow_gvi.learning.settings import RegulariserSettings, Settings
from tests.tolerances import assert_close

N = 100
SETTINGS = Settings(validation_fraction=0.0)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(N, 3))
    return X, X[:, :1] + rng.normal(size=(N, 1))


@pytest.mark.parametrize("column", [0, 2])
def test_a_column_that_one_value_makes_up_is_named(data, column):
    X, Y = data
    X[7, column] = 1e9
    with pytest.warns(NumericsWarning, match=rf"Column {column} of X has extreme values \(1e"):
        Split.of((X, Y), SETTINGS)


def test_a_column_that_is_lost_in_rounding_is_named(data):
    X, Y = data
    X[:, 1] = 1e9 + 1e-7 * X[:, 1]
    with pytest.warns(NumericsWarning, match=r"Column 1 of X has values so close to 1e\+09"):
        Split.of((X, Y), SETTINGS)


@pytest.mark.filterwarnings("error")
def test_columns_as_they_often_are_are_not_told_of(data, rng):
    X, Y = data
    rare = rng.random(N) < 0.02  # nearly always zero
    X = np.column_stack([X, rare, np.full(N, 3.0), np.exp(rng.normal(size=N)), 1e9 + X[:, 0]])
    Split.of((X, Y), SETTINGS)


@pytest.mark.filterwarnings("error")
def test_columns_that_pixels_might_be_have_units_of_their_own(data, rng):
    pixels = rng.integers(0, 256, size=(N, 64)).astype(float)
    Split.of((pixels, data[1]), SETTINGS).inputs.standard(pixels)


@pytest.mark.parametrize("unit", [2.0**-600, 2.0**400])
def test_units_of_x_do_not_matter(data, unit):
    X, Y = data
    split, other = Split.of((X, Y), SETTINGS), Split.of((unit * X, Y), SETTINGS)
    np.testing.assert_array_equal(other.standard(other.train)[0], split.standard(split.train)[0])


@pytest.mark.parametrize("codes", [(0, 1), (-1, 1), (1, 2)])
def test_two_values_that_nothing_calls_labels_are_told_of(data, codes):
    X, Y = data
    with pytest.warns(NumericsWarning, match=r"Y is {} or {} .*likelihood=".format(*codes)):
        Split.of((X, np.where(Y > 0.0, *codes[::-1])), SETTINGS)


def test_labels_in_several_columns_that_nothing_calls_labels_are_told_of(data):
    X, Y = data
    with pytest.warns(NumericsWarning, match=r"Y is 0 or 1 in each of 2 columns .*Bernoulli"):
        Split.of((X, np.hstack([Y > 0.0, Y > 0.5])), SETTINGS)


def test_several_whole_numbers_that_are_about_as_frequent_are_told_of(data, rng):
    X, _ = data
    with pytest.warns(NumericsWarning, match=r"Y is a whole number from 0 to 2 .*Softmax\(3\)"):
        Split.of((X, np.arange(100) % 3), SETTINGS)
    with warnings.catch_warnings():  # counts have rare values
        warnings.simplefilter("error")
        Split.of((X, rng.poisson(1.0, size=100)), SETTINGS)


def test_a_value_that_most_rows_have_is_told_of(data, rng):
    X, Y = data
    with pytest.warns(NumericsWarning, match=r"Y is 0 in 60 of 100 rows, .*GVIClassifier"):
        Split.of((X, np.where(np.arange(100)[:, None] < 60, 0.0, Y)), SETTINGS)
    with warnings.catch_warnings():  # counts have a grid; half of the rows do not decide
        warnings.simplefilter("error")
        Split.of((X, rng.poisson(0.5, size=100)), SETTINGS)
        Split.of((X, np.where(np.arange(100)[:, None] < 50, 0.0, Y)), SETTINGS)


def test_the_largest_fraction_is_told(data):
    with pytest.warns(NumericsWarning, match=r"fraction=0\.4: .*hold out 40.*it may be 0\.33 here"):
        split = Split.of(data, Settings(validation_fraction=0.0, calibration_fraction=0.4))
    assert split.calibration is None


def test_other_columns_than_those_of_the_data_are_refused(data):
    split = Split.of(data, SETTINGS)
    with pytest.raises(ValueError, match=r"shape \(100, 1\), but .* rows of shape \(3,\)"):
        split.inputs.standard(data[0][:, :1])


def test_inputs_must_be_rows(data):
    X, Y = data
    with pytest.raises(ValueError, match=r"X has shape \(100, 1, 3\).*X\.reshape"):
        Split.of((X[:, None], Y), SETTINGS)


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": gpflow.kernels.SquaredExponential()},
        {"kernel": gpflow.kernels.SquaredExponential(), "likelihood": gpflow.likelihoods.Poisson()},
        {"loss": "robust"},
        {"outputs": "correlated"},
    ],
)
def test_sets_of_one_row_are_refused_whatever_is_learned(options, rng):
    X, Y = rng.normal(size=(20, 2)), rng.poisson(2.0, size=(20, 2)).astype(float)
    with pytest.raises(ValueError, match=r"X has shape \(20, 1, 2\); it must be \[N, D\]"):
        gvi.learn((X[:, None], Y), **options)


def test_every_part_has_the_shares_of_the_classes(rng):
    Y = np.repeat([0, 1, 2], [60, 30, 10])
    settings = Settings(
        likelihood=Softmax(3), validation_fraction=0.1, calibration_fraction=0.2, seed=3
    )
    X = rng.normal(size=(N, 2))
    split = Split.of((X, Y), settings)
    for rows, share in ((split.train, 0.7), (split.validation, 0.1), (split.calibration, 0.2)):
        counts = np.bincount(rows[1][:, 0].astype(int), minlength=3)
        assert np.all(np.abs(counts - share * np.array([60, 30, 10])) <= 1.0)
    again = Split.of((X, Y), dataclasses.replace(settings, seed=4))
    assert not np.array_equal(again.validation[0], split.validation[0]), "chance decides which"


def test_images_are_rows_for_a_kernel_that_is_given(data):
    X, Y = data
    settings = Settings(RegulariserSettings(kernels=lambda data: []), validation_fraction=0.0)
    of_rows, of_images = Split.of((X, Y), settings), Split.of((X.reshape(N, 3, 1), Y), settings)
    np.testing.assert_array_equal(of_images.train[0], of_rows.train[0])
    standard = of_images.inputs.standard(X.reshape(N, 3, 1))
    assert_close(standard, (X - np.mean(X)) / np.std(X))  # pixels have one unit


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("held_out", ["validation", "calibration"])
def test_rows_of_equal_inputs_are_in_one_part(held_out, size, rng):
    """Beside its twin a row that was held out is none that is unseen."""
    X = rng.normal(size=(N, 3))[np.arange(N) // size]
    Y = rng.normal(size=(N, 1))
    settings = dataclasses.replace(SETTINGS, **{f"{held_out}_fraction": 0.2})
    split = Split.of((X, Y), settings)
    held, kept = getattr(split, held_out)[0], split.train[0]
    assert len(held) + len(kept) == N
    assert abs(len(held) - 0.2 * N) <= size / 2
    assert len(np.unique(held, axis=0)) + len(np.unique(kept, axis=0)) == len(np.unique(X, axis=0))


def test_few_inputs_are_held_out_as_they_are(rng):
    """Those of all rows are equal, or of halves of them, and no part is without the others."""
    Y = rng.normal(size=(N, 1))
    for X in (np.ones((N, 1)), np.repeat([[0.0], [1.0]], N // 2, axis=0)):
        split = Split.of((X, Y), dataclasses.replace(SETTINGS, validation_fraction=0.2))
        assert [len(split.train[0]), len(split.validation[0])] == [80, 20]

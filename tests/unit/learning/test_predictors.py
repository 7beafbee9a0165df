"""Predictors that are fitted without the rows that they predict."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from gpflow_gvi.learning.predictors import CrossFits, Fitted, parse_predictor
from gpflow_gvi.learning.row_facts import folds_of, groups_of
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.start import TrainingData
from tests.tolerances import ITERATIVE, assert_close


def _data(X, Y):
    units = Scaling.of(X), Scaling.of(Y)
    X, Y = (scaling.standard(part).numpy() for scaling, part in zip(units, (X, Y), strict=True))
    return TrainingData(X, Y, Y, 0, (X.shape[-1],), False, units)


@pytest.fixture
def data(rng):
    X = rng.normal(50.0, 10.0, size=(30, 2))
    return _data(X, X @ [[2.0], [-1.0]] + rng.normal(size=(30, 1)))


def test_no_row_is_predicted_by_a_model_that_has_seen_it(data):
    Y = np.arange(30.0)[:, None]
    unscaled = TrainingData(**vars(data) | {"units": (data.units[0], Scaling.none(Y))})
    (mean,) = CrossFits([KNeighborsRegressor(1)], unscaled, Y, num_folds=5).means
    assert not np.any(mean(data.X).numpy() == Y)  # the nearest neighbour of a row is itself
    np.testing.assert_array_equal(np.unique(mean(data.X) % 1.0), 0.0)


def test_some_of_the_estimators_keep_their_fits(data):
    Y = data.units[1].original(data.Y)
    estimators = [LinearRegression(), KNeighborsRegressor(1), KNeighborsRegressor(2)]
    every = CrossFits(estimators, data, Y, num_folds=5)
    wanted_means = every.means[0], every.means[2]
    some = every.only([0, 2])
    assert len(some.means) == some.num_means == 2
    for mean, wanted in zip(some.means, wanted_means, strict=True):
        np.testing.assert_array_equal(mean(data.X), wanted(data.X))


def test_without_a_fold_each_row_is_predicted_by_what_has_seen_neither(data):
    """As cross-fitting the other rows does, fold by fold."""
    X, Y = data.units[0].original(data.X), data.units[1].original(data.Y)
    found = CrossFits([LinearRegression()], data, Y, num_folds=5)
    for k in (0, 3):
        fits = {}
        for other in range(5):
            given = (found.fold != k) & (found.fold != other)
            if other != k:
                fits[other] = LinearRegression().fit(X[given], Y[given])
        expected = np.empty_like(Y)
        for other, fit in fits.items():
            expected[found.fold == other] = fit.predict(X[found.fold == other])
        held = found.fold == k
        expected[held] = np.mean([fit.predict(X[held]) for fit in fits.values()], axis=0)
        assert_close(data.units[1].original(found.unseen(k)[:, 0]), expected)


def test_another_partition_has_other_folds(data):
    Y = data.units[1].original(data.Y)
    found = CrossFits([LinearRegression()], data, Y, num_folds=5)
    other = found.of_partition(1)
    assert np.any(found.fold != other.fold)
    assert np.any(found.unseen(0) != other.unseen(0))


@pytest.mark.filterwarnings("error")
def test_a_training_that_is_brief_on_purpose_does_not_warn(data):
    Y = data.units[1].original(data.Y)
    estimators = [MLPRegressor(max_iter=1)]
    assert CrossFits(estimators, data, Y, num_folds=2, is_brief=True).means
    with pytest.raises(ConvergenceWarning):
        assert CrossFits(estimators, data, Y, num_folds=2).means


def test_elsewhere_it_is_the_average_of_the_models(data):
    X, Y = data.units[0].original(data.X), data.units[1].original(data.Y)
    (mean,) = CrossFits([LinearRegression()], data, Y, num_folds=5).means
    fold = folds_of(groups_of(data.X), 5, seed=0)
    new = data.X[:4] + 0.1
    fits = [LinearRegression().fit(X[fold != k], Y[fold != k]) for k in range(5)]
    average = np.mean([fit.predict(data.units[0].original(new)) for fit in fits], axis=0)
    assert_close(data.units[1].original(mean(new)), average)


def test_estimators_see_original_units_to_the_last_digit():
    """An encoder knows the categories that it was fitted to, and no other number."""
    X = np.stack(np.meshgrid(np.arange(1, 7), np.arange(1, 7)), -1).reshape(-1, 2) / 10.0
    Y = X.sum(axis=1, keepdims=True)
    data = _data(X, Y)
    pipeline = make_pipeline(OneHotEncoder(handle_unknown="error"), LinearRegression())
    (mean,) = CrossFits([pipeline], data, Y, num_folds=3).means
    values = data.units[1].original(mean(data.X[::-1] + 0.0))
    assert_close(values, Y[::-1], ITERATIVE)  # least squares of sparse columns


def test_what_cannot_be_fitted_is_taken_as_it_is(data):
    Y = data.units[1].original(data.Y)
    (mean,) = CrossFits([lambda X: X[:, 0]], data, Y, num_folds=5).means
    first = data.units[0].original(data.X)[:, :1]
    assert_close(data.units[1].original(mean(data.X)), first)


def test_a_predictor_that_is_fitted_already_needs_rows_that_it_has_not_seen(data):
    rows, unseen = (data.X, data.Y), (data.X + 1.0, data.Y)
    fitted = LinearRegression().fit(*rows)
    with pytest.raises(ValueError, match=r"LinearRegression that is fitted .* validation_data"):
        parse_predictor(fitted, True, rows, None)
    predictors, given, validation = parse_predictor(fitted, True, rows, unseen)
    assert given is unseen
    assert validation is None
    (predictor,) = predictors(data)
    assert isinstance(predictor, Fitted)
    np.testing.assert_array_equal(predictor.predict(data.X), fitted.predict(data.X))
    # scikit-learn's Gaussian process predicts without having been fitted.
    process = GaussianProcessRegressor(alpha=0.1)
    with pytest.raises(ValueError, match="Pipeline that is fitted"):
        parse_predictor(
            make_pipeline(StandardScaler(), clone(process)).fit(*rows), True, rows, None
        )
    pipeline = make_pipeline(StandardScaler(), process)
    unfitted_ones = (LinearRegression(), np.sin, [LinearRegression(), np.sin], process, pipeline)
    for unfitted in unfitted_ones:
        predictors, given, validation = parse_predictor(unfitted, True, rows, unseen)
        assert given is rows
        assert validation is unseen


def test_predictors_of_which_some_are_fitted_are_refused(data):
    rows = (data.X, data.Y)
    both = [LinearRegression().fit(*rows), LinearRegression()]
    with pytest.raises(ValueError, match="that are fitted and others that are not"):
        parse_predictor(both, True, rows, rows)


@pytest.mark.parametrize("predictor", ["trees", 3.0, LinearRegression, [LinearRegression(), None]])
def test_what_is_no_predictor_is_refused(predictor):
    with pytest.raises((TypeError, ValueError), match=r"predictor is .*; it must be"):
        parse_predictor(predictor, True, None, None)

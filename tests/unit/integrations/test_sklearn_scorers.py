"""Quantiles and scorers of whole distributions, beside closed forms of SciPy's."""

from __future__ import annotations

import copy
import dataclasses

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gpflow_gvi as gvi
from gpflow_gvi import scorers
from gpflow_gvi.calibration.conformal_prediction import Conformal
from tests.tolerances import assert_close

QUICK = {"num_inducing": 10, "effort": "fast", "predictor": None, "random_state": 0}
GAUSSIAN = {**QUICK, "noise": "constant"}
ONE = {**QUICK, "kernel": gpflow.kernels.SquaredExponential()}


def _curve(count=60):
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(-3.0, 3.0, size=count), rng.normal(size=count)])
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=count)


@pytest.fixture(scope="module")
def data():
    X, y = _curve(100)
    return X[60:], y[60:]


@pytest.fixture(scope="module")
def pipeline():
    return make_pipeline(StandardScaler(), gvi.GVIRegressor(**GAUSSIAN)).fit(*_curve())


@pytest.fixture(scope="module")
def law(pipeline, data):
    """The predictive distribution, of SciPy."""
    return scipy.stats.norm(*pipeline.predict(data[0], return_std=True))


@pytest.mark.slow
def test_quantiles_are_those_of_the_predictive_law(pipeline, data, law):
    levels = [0.9, 0.05, 0.5, 0.25]
    found = pipeline[-1].predict_quantiles(pipeline[:-1].transform(data[0]), levels)
    assert_close(found, np.stack([law.ppf(level) for level in levels], axis=1))


@pytest.mark.parametrize("quantiles", [[0.0, 0.5], [1.0], 0.5, [-0.1]])
def test_levels_are_between_0_and_1(pipeline, quantiles):
    with pytest.raises(ValueError, match="levels between 0 and 1"):
        pipeline[-1].predict_quantiles(np.zeros((1, 2)), quantiles)


@pytest.mark.slow
def test_quantiles_of_columns_have_an_axis_of_their_own():
    X, y = _curve()
    model = gvi.GVIRegressor(**GAUSSIAN).fit(X, np.column_stack([y, 2.0 * y]))
    found = model.predict_quantiles(X[:5])
    assert found.shape == (5, 2, 3)
    assert_close(found[:, 1], 2.0 * found[:, 0])
    assert np.all(np.diff(found, axis=-1) > 0.0)


def test_the_density_is_that_of_the_law(pipeline, data, law):
    found = scorers.neg_log_predictive_density(pipeline, *data)
    assert_close(found, np.mean(law.logpdf(data[1])))


def test_the_crps_is_that_of_the_law(pipeline, data, law):
    u = (data[1] - law.mean()) / law.std()
    norm = scipy.stats.norm
    exact = law.std() * (u * (2.0 * norm.cdf(u) - 1.0) + 2.0 * norm.pdf(u) - np.pi**-0.5)
    assert scorers.neg_crps(pipeline, *data) == pytest.approx(-np.mean(exact), rel=1e-3)


def test_the_interval_score_punishes_width_and_what_is_outside(pipeline, data, law):
    y = data[1] + 0.3  # so that some are outside
    for coverage in (0.5, 0.9):
        lower, upper = law.interval(coverage)
        assert np.any(y > upper)
        alpha, expected = 1.0 - coverage, upper - lower
        expected += np.where(y < lower, 2.0 / alpha * (lower - y), 0.0)
        expected += np.where(y > upper, 2.0 / alpha * (y - upper), 0.0)
        assert_close(scorers.interval_score(pipeline, data[0], y, coverage), -np.mean(expected))
    assert_close(scorers.interval_score(pipeline, data[0], y), -np.mean(expected))


@pytest.mark.slow
def test_a_search_takes_what_predicts_best_by_each_of_them():
    names = ["neg_log_predictive_density", "neg_crps", "interval_score"]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), gvi.GVIRegressor(**QUICK)),
        {"gviregressor__num_inducing": [1, 10]},
        scoring={name: getattr(scorers, name) for name in names},
        refit=False,
        cv=2,
        error_score="raise",
    )
    results = search.fit(*_curve()).cv_results_
    for name in names:
        assert list(results[f"rank_test_{name}"]) == [2, 1]


@pytest.mark.slow
def test_labels_are_scored_by_minus_the_log_loss():
    X, y = _curve()
    y = np.where(y > 0.0, "up", "down")
    model = gvi.GVIClassifier(**QUICK).fit(X, y)
    expected = -log_loss(y, model.predict_proba(X))
    assert_close(scorers.neg_log_predictive_density(model, X, y), expected)
    assert_close(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert scorers.neg_log_predictive_density(model, X[:1], ["left"]) == -np.inf
    found = cross_val_score(model, X, y, cv=2, scoring=scorers.neg_log_predictive_density)
    assert np.all(found < 0.0)


def test_other_estimators_are_refused(pipeline, data):
    line = LinearRegression().fit(*data)
    with pytest.raises(TypeError, match="estimator is a LinearRegression; the score is of"):
        scorers.neg_crps(line, *data)
    of_log = TransformedTargetRegressor(pipeline, transformer=StandardScaler())
    with pytest.raises(TypeError, match=r"Transformed.*; the score is .* in the units of its y"):
        scorers.neg_crps(of_log, *data)
    with pytest.raises(ValueError, match="coverage is 90"):
        scorers.interval_score(pipeline, *data, 90)


SCORES = [scorers.neg_log_predictive_density, scorers.neg_crps, scorers.interval_score]


@pytest.mark.parametrize("score", SCORES)
def test_a_search_is_scored_as_what_it_has_found(score, pipeline, data):
    search = GridSearchCV(pipeline, {})
    search.best_estimator_ = pipeline  # as `fit` leaves it
    assert_close(score(search, *data), score(pipeline, *data))


@pytest.mark.parametrize("score", SCORES)
def test_rows_and_observations_are_the_same_in_number(score, pipeline, data):
    with pytest.raises(ValueError, match=r"X or y cannot be taken: .*\[40, 1\]"):
        score(pipeline, data[0], data[1][:1])


def test_the_crps_of_conformal_intervals_is_that_of_their_ends(pipeline, data):
    """With residuals of a Gaussian they are those of the law, whose score is exact."""
    ranks = np.arange(1, 10_001)[:, None] / 10_001
    residuals = Conformal(None, scipy.stats.norm.ppf(0.5 + 0.5 * ranks))
    model = copy.copy(pipeline[-1])
    model.learned_ = dataclasses.replace(model.learned_, calibration=residuals)
    found = scorers.neg_crps(model, pipeline[:-1].transform(data[0]), data[1])
    assert found == pytest.approx(scorers.neg_crps(pipeline, *data), rel=5e-3)


HOLES = np.where(np.arange(60) < 5, np.nan, _curve()[1])


@pytest.fixture(scope="module")
def with_gaps():
    return gvi.GVIRegressor(**ONE, missing="ignore").fit(*_curve())


@pytest.fixture(scope="module")
def several():
    X, y = _curve()
    Y = np.c_[y, -y]
    Y[[3, 8], 1] = np.nan
    return gvi.GVIRegressor(**ONE, missing="ignore").fit(X, Y), X, Y


@pytest.mark.slow
@pytest.mark.parametrize("score", [scorers.neg_crps, scorers.interval_score])
def test_missing_values_are_left_out(score, with_gaps, several):
    X, y = _curve()
    expected = score(with_gaps, X[5:], y[5:])
    assert_close(score(with_gaps, X, HOLES), expected)
    assert_close(score(with_gaps, X, np.where(np.isnan(HOLES), None, y)), expected)
    model, X, Y = several
    whole = ~np.isnan(Y[:, 1])
    parts = [score(model, X[rows], Y[rows]) for rows in (whole, ~whole)]
    assert_close(score(model, X, Y), np.average(parts, weights=[2 * 58, 2]))


def test_the_density_is_of_rows_without_gaps(with_gaps):
    X, y = _curve()
    score = scorers.neg_log_predictive_density
    expected = np.mean(with_gaps.predict_log_density(X[5:], y[5:]))
    assert_close(score(with_gaps, X, HOLES), expected)
    assert_close(score(with_gaps, pd.DataFrame(X), pd.Series(HOLES)), expected)
    with pytest.raises(ValueError, match="in no row a value in each column"):
        score(with_gaps, X, np.full(60, np.nan))


def test_missing_values_are_refused_where_they_are_not_ignored(pipeline):
    with pytest.raises(ValueError, match="y has NaN"):
        scorers.neg_crps(pipeline, _curve()[0], HOLES)

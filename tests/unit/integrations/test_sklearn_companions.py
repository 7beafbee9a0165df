"""What works with the estimators as they are: skpro, MAPIE, ScoringBench, foundation models."""

import numpy as np
import pytest
import scipy.stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import make_friedman1

import gpflow_gvi as gvi
from benchmarks import scoringbench
from gpflow_gvi import scorers
from tests.tolerances import assert_close

QUICK = {"effort": "fast", "noise": "constant", "random_state": 0}


@pytest.fixture(scope="module")
def data():
    return make_friedman1(160, n_features=5, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    X, y = data
    return gvi.GVIRegressor(**QUICK).fit(X[:80], y[:80])


def test_skpro_takes_mean_and_standard_deviation(data, fitted):
    adapters = pytest.importorskip("skpro.regression.adapters.sklearn")
    pandas = pytest.importorskip("pandas")
    X, y = pandas.DataFrame(data[0], columns=list("abcde")), pandas.DataFrame({"y": data[1]})
    adapter = adapters.SklearnProbaReg(gvi.GVIRegressor(**QUICK))
    law = adapter.fit(X[:80], y[:80]).predict_proba(X[80:])
    mean, sd = fitted.predict(data[0][80:], return_std=True)
    expected = scipy.stats.norm(mean, sd).logpdf(data[1][80:])
    assert_close(np.ravel(law.log_pdf(y[80:])), expected)


def test_mapie_divides_errors_by_the_standard_deviation(data, fitted):
    mapie = pytest.importorskip("mapie.regression")
    scores = pytest.importorskip("mapie.conformity_scores")
    X, y = data
    wrapped = mapie.SplitConformalRegressor(
        fitted, confidence_level=0.8, conformity_score=scores.StdConformityScore(), prefit=True
    ).conformalize(X[80:120], y[80:120])
    mean, intervals = wrapped.predict_interval(X[120:])
    at, sd = fitted.predict(X[80:120], return_std=True)
    half = np.sort(np.abs(at - y[80:120]) / sd)[int(np.ceil(0.8 * 41)) - 1]  # of split conformal
    expected = half * fitted.predict(X[120:], return_std=True)[1]
    assert_close(intervals[:, 1, 0] - np.ravel(mean), expected)


def test_crps_is_that_of_scoringrules(data, fitted):
    scoringrules = pytest.importorskip("scoringrules")
    X, y = data[0][80:], data[1][80:]
    mean, sd = fitted.predict(X, return_std=True)
    expected = np.mean(scoringrules.crps_normal(y, mean, sd))
    assert_close(gvi.metrics.crps(y[:, None], mean[:, None], np.square(sd)[:, None]), expected)
    assert abs(-scorers.neg_crps(fitted, X, y) - expected) < 0.005 * expected  # by quadrature


def test_wrapper_of_scoringbench(data):
    X, y = np.array(data[0]), np.array(data[1])
    X[::7, 2], y[3] = np.inf, np.nan

    def container(quantiles, levels, mean, *, train_range):
        assert train_range == (np.nanmin(y[:80]), np.nanmax(y[:80]))
        return quantiles, levels, mean

    model = scoringbench.GVI(container, **QUICK).fit(X[:80], y[:80])
    quantiles, levels, mean = model.predict_distribution(X[80:])
    assert quantiles.shape == (80, len(levels))
    assert np.all(np.diff(quantiles, axis=1) > 0.0)
    assert_close(mean, model.predict(X[80:]))
    of_targets = scoringbench.pinball(np.quantile(data[1][:80], levels)[None], levels, y[80:])
    assert scoringbench.pinball(quantiles, levels, y[80:]) < 0.7 * of_targets


class InContext(RegressorMixin, BaseEstimator):
    """A stand-in for TabPFN or TabICL: it keeps the rows, and attends to them at a prediction."""

    def fit(self, X, y):
        self.X_, self.y_ = X, y
        return self

    def predict(self, X):
        squares = np.square(X[:, None] - self.X_).sum(axis=2)
        weights = np.exp(-squares / 0.1)
        return weights @ self.y_ / weights.sum(axis=1)


def test_a_model_that_learns_in_context_is_cross_fitted(data):
    X, y = data
    alone = InContext().fit(X[:80], y[:80])
    parts = (slice(80), slice(80, None))
    errors = [np.mean(np.square(alone.predict(X[part]) - y[part])) for part in parts]
    assert errors[0] < 0.5 * errors[1]  # it has seen these rows
    model = gvi.GVIRegressor(predictor=InContext(), **QUICK).fit(X[:80], y[:80])
    lower, upper = model.predict_interval(X[80:], 0.9)
    assert 0.8 <= np.mean((lower <= y[80:]) & (y[80:] <= upper)) <= 1.0
    assert np.mean(np.square(model.predict(X[80:]) - y[80:])) < errors[1]

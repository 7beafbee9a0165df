"""What is asked of a fitted estimator and cannot be: errors name the argument, as given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import gpflow_gvi as gvi
from gpflow_gvi import scorers

N = 6
X, ONES = np.arange(2.0 * N).reshape(N, 2), np.ones(N)
SCORES = [scorers.neg_crps, scorers.interval_score, scorers.neg_log_predictive_density]


@pytest.fixture(scope="module")
def regressor():
    """One of a constant, which takes no time to fit."""
    with pytest.warns(UserWarning, match="constant"):
        return gvi.GVIRegressor().fit(X, ONES)


@pytest.fixture(scope="module")
def classifier():
    with pytest.warns(UserWarning, match="alone"):
        return gvi.GVIClassifier().fit(X, ["a"] * N)


@pytest.mark.parametrize("ask", [gvi.GVIRegressor.score, *SCORES])
def test_a_score_of_what_is_not_fitted(ask):
    with pytest.raises(NotFittedError):
        ask(gvi.GVIRegressor(), X, ONES)


def test_a_score_of_a_classifier_that_is_not_fitted():
    for ask in (gvi.GVIClassifier.score, scorers.neg_log_predictive_density):
        with pytest.raises(NotFittedError):
            ask(gvi.GVIClassifier(), X, ["a"] * N)


@pytest.mark.parametrize("ask", [gvi.GVIRegressor.score, *SCORES])
def test_a_score_of_other_columns_names_y(ask, regressor):
    with pytest.raises(ValueError, match=r"y has shape \(6, 2\), but in fit it had 1 column"):
        ask(regressor, X, np.ones((N, 2)))


@pytest.mark.parametrize("weights", [np.ones(3), -ONES, ["a"] * N, np.full(N, np.nan)])
def test_weights_of_a_score_are_named(weights, regressor, classifier):
    for model, y in ((regressor, ONES), (classifier, ["a"] * N)):
        with pytest.raises(ValueError, match=r"^sample_weight cannot be taken: (?!.*OneHot)"):
            model.score(X, y, sample_weight=weights)


def test_coverages_and_counts_are_validated_of_constants_too(regressor, classifier):
    with pytest.raises(ValueError, match="coverage is 95"):
        regressor.predict_interval(X, 95)
    with pytest.raises(ValueError, match="coverage is 95"):
        classifier.predict_set(X, 95)
    with pytest.raises(ValueError, match="n_samples is -1; it must be a whole number"):
        regressor.sample_y(X, -1)


@pytest.mark.parametrize("levels", [[], ["a"]])
def test_levels_that_are_none_are_named(levels, regressor):
    with pytest.raises(ValueError, match=r"^quantiles (is|cannot be taken)(?!.*OneHot)"):
        regressor.predict_quantiles(X, levels)


@pytest.mark.parametrize("seed", ["a", -1, np.random.default_rng(0)])
def test_a_random_state_that_is_none_is_named(seed, regressor):
    for ask in (
        lambda: gvi.GVIRegressor(random_state=seed).fit(X, X[:, 0] ** 2),
        lambda: regressor.sample_y(X, random_state=seed),
    ):
        with pytest.raises(ValueError, match=r"^random_state cannot be taken"):
            ask()


@pytest.mark.parametrize("kind", [gvi.GVIRegressor, gvi.GVIClassifier])
def test_a_y_that_is_missing_is_told_by_its_row_with_a_remedy(kind):
    y = np.where(np.arange(N) == 4, np.nan, np.arange(N) % 2)
    message = r"y has missing values in 1 of 6 rows \(the first is row 4\).*missing='ignore'"
    for given in (y, y.astype(object)):
        with pytest.raises(ValueError, match=message):
            kind().fit(X, given)


def test_classes_are_no_correlated_outputs():
    with pytest.raises(ValueError, match=r"Bernoulli .* outputs='correlated' .* one of them"):
        gvi.GVIClassifier(outputs="correlated").fit(X, ["a", "b"] * (N // 2))

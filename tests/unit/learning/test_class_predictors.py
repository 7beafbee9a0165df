"""Classifiers as means of latent functions."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.special import expit, logit, softmax
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import gpflow_gvi as gvi
from gpflow_gvi.learning.class_predictors import MIN_PROBABILITY, LogProbabilities
from gpflow_gvi.learning.rows.scaling import Scaling
from tests.tolerances import assert_close


def _units():
    return Scaling(np.array([3.0, -1.0]), np.array([2.0, 5.0]))


def _of(model, classes=(0, 1, 2), num_latents=3):
    return LogProbabilities(model, _units(), np.array(classes), num_latents)


def test_softmax_of_the_values_are_the_probabilities_in_original_units(rng):
    X, y = 2.0 * rng.normal(size=(60, 2)) + 3.0, np.arange(60) % 3
    model = LogisticRegression().fit(X + y[:, None], y)
    standard = _units().standard(X).numpy()
    values = _of(model).predict(standard)
    assert_close(values.sum(axis=1), 0.0, scale=np.max(np.abs(values)))
    p = np.maximum(model.predict_proba(X), MIN_PROBABILITY)
    assert_close(softmax(values, axis=1), p / p.sum(axis=1, keepdims=True))


def test_with_one_latent_function_they_are_log_odds(rng):
    X = rng.normal(size=(5, 2))
    p = expit(rng.normal(size=5))
    for model in (lambda _: p, lambda _: np.column_stack([1.0 - p, p])):
        assert_close(_of(model, (0, 1), 1).predict(X)[:, 0], logit(p))


def test_a_class_that_a_fold_lacks_has_a_small_probability(rng):
    X, y = rng.normal(size=(20, 2)), np.repeat([0, 2], 10)
    p = softmax(_of(LogisticRegression().fit(X, y)).predict(X), axis=1)
    assert np.all((p[:, 1] > 0.0) & (p[:, 1] <= MIN_PROBABILITY))


@pytest.mark.parametrize("kind", [ExtraTreesClassifier, HistGradientBoostingClassifier])
def test_a_fold_of_one_class_has_that_class(rng, kind):
    X = rng.normal(size=(20, 2))
    only = _of(kind(max_depth=1).fit(X, np.ones(20, int)), (0, 1), 1)
    assert_close(expit(only.predict(X)), 1.0 / (1.0 + MIN_PROBABILITY))


def test_what_was_fitted_to_names_is_known_by_them(rng):
    X, y = rng.normal(size=(20, 2)), np.repeat(["a", "c"], 10)
    values = functools.partial(_of, classes=("a", "b", "c"))
    fitted = LogisticRegression().fit(X, y)
    assert_close(
        values(fitted).predict(X), _of(LogisticRegression().fit(X, 2 * (y == "c"))).predict(X)
    )


def test_what_is_no_classifier_is_refused(rng):
    X, y = rng.normal(size=(20, 2)), np.arange(20) % 3
    with pytest.raises(TypeError, match="LinearSVC, which has no method predict_proba"):
        _of(LinearSVC().fit(X, y)).predict(X)
    with pytest.raises(ValueError, match=r"shape \(20, 2\) of the classes \[0, 1, 2\]"):
        _of(lambda rows: np.full((len(rows), 2), 0.5)).predict(X)
    with pytest.raises(ValueError, match=r"of the classes \['x', 'y'\]"):
        _of(LogisticRegression().fit(X, np.where(y == 0, "x", "y"))).predict(X)


@pytest.mark.slow
def test_a_classifier_around_predictors_is_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    labels = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0.0, "yes", "no")
    learned = gvi.learn((X, labels), predictor=LogisticRegression(), effort="fast")
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    assert_close(loaded.predict_proba(X), learned.predict_proba(X))

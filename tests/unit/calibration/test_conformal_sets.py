"""Conformal sets of classes: coverage, sizes, ties."""

from __future__ import annotations

import math

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

from gpflow_gvi.calibration import ConformalSets
from gpflow_gvi.calibration.conformal_prediction import conformal
from gpflow_gvi.prediction.class_probabilities import class_probabilities
from tests.models import make
from tests.tolerances import ROUNDING, STANDARD_ERRORS, assert_estimates

ONES = np.ones((12, 1))


def classified(J: int, N: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(N, 1))
    return X, rng.integers(J, size=N)  # the model is wrong: coverage must not depend on it


def deviation(coverage: float, calibrated: int, tested: int) -> float:
    """The standard deviation of a coverage over calibration sets and test sets of these sizes."""
    return np.sqrt(coverage * (1.0 - coverage) * (1.0 / calibrated + 1.0 / tested))


@pytest.mark.parametrize(("n", "coverage"), [(19, 0.9), (50, 0.6)])
def test_coverage_of_sets_is_at_least_nominal(n: int, coverage: float) -> None:
    """Averaged over calibration sets and new points, coverage is k/(n+1) if no scores are tied."""
    X, Y = classified(3, 100_000)
    scores = 1.0 - np.random.default_rng(2).dirichlet(np.ones(3), size=len(X))
    right = scores[np.arange(len(Y)), Y]
    rank = math.ceil((n + 1) * coverage)
    groups = right[: len(right) // (n + 1) * (n + 1)].reshape(-1, n + 1)
    quantiles = [
        ConformalSets(None, *2 * [np.sort(each[:n])[:, None]]).quantile(coverage) for each in groups
    ]
    covered = np.mean(groups[:, n] <= quantiles)
    assert_estimates(covered, rank / (n + 1), np.sqrt(coverage * (1.0 - coverage) / len(groups)))


@pytest.mark.parametrize("likelihood", [gpflow.likelihoods.MultiClass, gpflow.likelihoods.Softmax])
def test_sets_of_models(likelihood: type) -> None:
    model = make(3, likelihood(3))
    X, Y = classified(3, 400)
    sets = conformal(model, (X[:200], Y[:200]))
    named = sets.predict_set(X, 0.8)
    assert named.shape == (400, 3)
    assert named.dtype == bool
    assert np.mean(named[np.arange(200), Y[:200]]) >= 0.8, "the calibration points are covered"
    assert_estimates(np.mean(named[np.arange(200, 400), Y[200:]]), 0.8, deviation(0.8, 200, 200))
    np.testing.assert_array_equal(sets.predict_set(tf.Variable(X), 0.8), named)
    larger = sets.predict_set(X, 0.95)
    assert np.all(larger >= named), "sets of a larger coverage hold the smaller ones"
    np.testing.assert_array_equal(sets.predict_set(X), larger)
    # What is more probable than a class in the set is in it too.
    p = class_probabilities(model, X)
    named = sets.predict_set(X, 0.8, allow_empty=True)
    assert p[named].min() >= p[~named].max() - ROUNDING.float64


def test_too_few_points_name_every_class() -> None:
    X, Y = classified(3, 9)
    sets = conformal(make(3, gpflow.likelihoods.MultiClass(3)), (X, Y))
    assert np.all(sets.predict_set(X, 0.95))
    assert not np.all(sets.predict_set(X, 0.5))


def test_sets_say_what_is_wrong() -> None:
    model = make(3, gpflow.likelihoods.MultiClass(3))
    with pytest.raises(ValueError, match="whole numbers from 0 to 2"):
        conformal(model, (ONES, 3.0 * ONES))
    with pytest.raises(ValueError, match="coverage is 2"):
        conformal(model, (ONES, ONES)).predict_set(ONES, 2)


class Truth:
    """A model of f that is known: p(y | x) = softmax(f(x)), and half as sure as it should be."""

    likelihood = gpflow.likelihoods.Softmax(4)

    def __init__(self, sharpness: float = 0.5) -> None:
        self.sharpness = sharpness

    def f(self, X: np.ndarray) -> np.ndarray:
        return 3.0 * np.cos(X * np.array([1.0, 2.0, 3.0, 4.0]) + np.arange(4))

    def predict_f(self, X: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        mean = tf.constant(self.sharpness * self.f(np.asarray(X)))
        return mean, tf.fill(mean.shape, tf.constant(0.01, mean.dtype))

    def predict_y(self, X: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
        return self.likelihood.predict_mean_and_var(X, *self.predict_f(X))

    def draw(self, rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.uniform(-3.0, 3.0, size=(N, 1))
        return X, np.array([rng.choice(4, p=p) for p in softmax(self.f(X), axis=1)])


class Mixed(Truth):
    """Half of the rows have one class, the others any of them."""

    def f(self, X: np.ndarray) -> np.ndarray:
        easy, hard = np.array([6.0, 0.0, 0.0, 0.0]), np.log([0.4, 0.3, 0.2, 0.1])
        return np.where(X > 0.0, easy, hard) + 0.2 * super().f(X)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("allow_empty", [False, True])
def test_coverage_on_data_of_known_truth(adaptive: bool, allow_empty: bool) -> None:
    model, rng = Truth(), np.random.default_rng(5)
    sets = conformal(model, model.draw(rng, 1500))
    X, Y = model.draw(rng, 3000)
    named = sets.predict_set(X, 0.9, adaptive=adaptive, allow_empty=allow_empty)
    covered = np.mean(named[np.arange(len(Y)), Y])
    error = deviation(0.9, 1500, 3000)
    if allow_empty:
        assert_estimates(covered, 0.9, error)
    else:
        assert covered > 0.9 - STANDARD_ERRORS * error
        assert np.all(named.any(axis=1))


def test_the_adaptive_set_of_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    model, rng = Truth(1.0), np.random.default_rng(9)
    sets = conformal(model, model.draw(rng, 2000))
    X, Y = model.draw(rng, 2000)

    def named(X: np.ndarray) -> np.ndarray:
        return sets.predict_set(X, 0.5, adaptive=True, allow_empty=True)

    together = named(X)
    assert_estimates(np.mean(together[np.arange(2000), Y]), 0.5, deviation(0.5, 2000, 2000))
    np.testing.assert_array_equal(named(X[::-1]), together[::-1])
    one_by_one = np.concatenate([named(x[None]) for x in X[:50]])
    np.testing.assert_array_equal(one_by_one, together[:50])


def test_adaptive_sets_cover_easy_and_hard_rows_alike() -> None:
    model, rng = Mixed(1.0), np.random.default_rng(6)
    sets = conformal(model, model.draw(rng, 1500))
    X, Y = model.draw(rng, 6000)
    is_easy = X[:, 0] > 0.0
    right = {}
    for adaptive in (False, True):
        named = sets.predict_set(X, 0.85, adaptive=adaptive, allow_empty=True)
        of_rows = named[np.arange(len(Y)), Y]
        right[adaptive] = np.array([np.mean(of_rows[is_easy]), np.mean(of_rows[~is_easy])])
    error = deviation(0.85, 750, 3000)  # of each half
    assert_estimates(right[True], 0.85, error)
    assert right[False].min() < 0.85 - STANDARD_ERRORS * error


def test_ties_of_probabilities_are_broken_by_the_margins_of_f() -> None:
    """Under RobustMax, all that is certain has one probability, right or wrong."""
    model = Truth(20.0)
    model.likelihood = gpflow.likelihoods.MultiClass(4)
    rng = np.random.default_rng(7)
    X, Y = model.draw(rng, 400)
    sets = conformal(model, (X, Y))
    p = 1.0 - np.round(sets.scores[:, 0], 4)
    assert len(np.unique(p)) < 50, "the probabilities are not tied"
    assert len(np.unique(sets.scores)) == 400
    X, Y = model.draw(rng, 2000)
    named = sets.predict_set(X, 0.9)
    assert_estimates(np.mean(named[np.arange(2000), Y]), 0.9, deviation(0.9, 400, 2000))
    assert 1.0 < np.mean(named.sum(axis=1)) < 3.9


def test_labels_are_what_the_model_calls_them() -> None:
    model, (X, Y) = make(3, gpflow.likelihoods.Softmax(3)), classified(3, 40)
    expected = conformal(model, (X, Y)).scores
    model.classes_ = np.array(["a", "b", "c"])
    np.testing.assert_array_equal(conformal(model, (X, model.classes_[Y])).scores, expected)
    with pytest.raises(
        ValueError, match=r"Y of calibration_data has labels that are none of the 3"
    ):
        conformal(model, (X, np.full(40, "d")))

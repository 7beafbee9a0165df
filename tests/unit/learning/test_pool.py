"""Weights of candidates."""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.stats
from scipy.special import logsumexp, softmax

from gpflow_gvi.learning.pool import log_density, pooled, stacked
from gpflow_gvi.learning.recipe import Recipe
from tests.tolerances import ITERATIVE, assert_close

RECIPE = Recipe()


def test_stacking_is_the_maximum_of_its_objective(rng):
    y = rng.normal(size=60)
    laws = [scipy.stats.norm(-0.5, 1.0), scipy.stats.norm(0.7, 0.8), scipy.stats.t(3.0)]
    logs = np.array([law.logpdf(y) for law in laws])

    def loss(x):
        w = softmax(np.append(x, 0.0))
        return -np.sum(logsumexp(np.log(w)[:, None] + logs, axis=0)) - RECIPE.prior * np.sum(
            np.log(w)
        )

    expected = softmax(np.append(scipy.optimize.minimize(loss, np.zeros(2), tol=1e-12).x, 0.0))
    assert_close(stacked(logs, RECIPE.prior), expected, ITERATIVE)


def test_halves_that_two_candidates_know_are_pooled():
    logs = np.full((2, 100), -1.0)
    logs[0, :50] = logs[1, 50:] = 1.0
    weights = pooled(logs, RECIPE)
    assert_close(weights, [0.5, 0.5], ITERATIVE)
    assert_close(log_density(weights, logs), np.log(0.5 * (np.exp(1.0) + np.exp(-1.0))))


def test_a_candidate_that_is_better_everywhere_is_alone():
    logs = np.zeros((3, 200))
    logs[1] += 0.5
    np.testing.assert_array_equal(pooled(logs, RECIPE), [0.0, 1.0, 0.0])


def test_of_equal_candidates_one_suffices(rng):
    logs = np.tile(rng.normal(size=300), (2, 1))
    np.testing.assert_array_equal(np.sort(pooled(logs, RECIPE)), [0.0, 1.0])


def test_where_few_rows_do_not_tell_which_is_better_there_is_a_mixture(rng):
    same = rng.normal(size=20)
    few = np.array([same + 0.3 * rng.normal(size=20), same + 0.3 * rng.normal(size=20)])
    assert np.all(pooled(few, RECIPE) > 0.0)


def test_the_pool_is_not_worse_than_its_best_part(rng):
    for _ in range(20):
        logs = rng.normal(size=(4, 50))
        assert (
            log_density(pooled(logs, RECIPE), logs)
            > np.max(np.mean(logs, axis=1)) - RECIPE.min_gain
        )

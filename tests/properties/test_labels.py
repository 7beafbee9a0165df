"""What has to hold of every fit of labels, on data whose truth is known."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

import gpflow_gvi as gvi
from tests.tolerances import STANDARD_ERRORS

pytestmark = pytest.mark.slow

NUM_NEW = 2000

MAX_LOSS = 0.05
"""How much worse than a constant or a logistic regression nothing is, in nats a row."""

MAX_CHANGE = 0.1
"""How far probabilities may be apart, on average, where only chance differs."""


class Rows(NamedTuple):
    """Inputs and labels."""

    X: np.ndarray
    y: np.ndarray


def _of(p, rng):
    return np.array(["no", "yes"])[(rng.random(len(p)) < p).astype(int)]


def _waves(rng, N):
    X = rng.uniform(-2.0, 2.0, size=(N, 2))
    return Rows(X, _of(expit(4.0 * np.sin(2.0 * X[:, 0]) * X[:, 1]), rng))


def _linear(rng, N):
    X = rng.normal(size=(N, 6))
    return Rows(X, _of(expit(X @ [1.0, -2.0, 1.5, 0.0, 0.0, 0.5]), rng))


def _noise(rng, N):
    return Rows(rng.normal(size=(N, 5)), _of(np.full(N, 0.3), rng))


def _regions(rng, N):
    X = rng.uniform(size=(N, 2))
    return Rows(X, np.array(["a", "b", "c"])[(X[:, 0] > 0.5) * (1 + (X[:, 1] > 0.5))])


def _categories(rng, N):
    """Three columns of categories, each combination with a probability of its own."""
    X = rng.integers(0, [3, 2, 2], size=(N, 3))
    logits = np.random.default_rng(7).normal(0.0, 1.5, size=(3, 2, 2))
    return Rows(X.astype(float), _of(expit(logits[tuple(X.T)]), rng))


SETS = {
    "waves": (_waves, 200),
    "linear": (_linear, 150),
    "noise": (_noise, 70),
    "regions": (_regions, 120),
    "with_categories": (_categories, 400),
}
every_set = pytest.mark.parametrize("name", SETS)


@functools.cache
def _rows(name):
    draw, N = SETS[name]
    rng = np.random.default_rng(sorted(SETS).index(name))
    return draw(rng, N), draw(rng, NUM_NEW)


@functools.cache
def _learned(name, seed=0):
    return gvi.learn(tuple(_rows(name)[0]), seed=seed)


def _losses(p, classes, y):
    """Return the log loss of each label: [N]."""
    at = np.searchsorted(classes, y)
    return -np.log(np.maximum(p[np.arange(len(y)), at], 1e-12))


def _of_learned(learned, new):
    return _losses(learned.predict_proba(new.X), learned.classes_, new.y)


@every_set
def test_nothing_is_worse_than_a_constant_or_a_logistic_regression(name):
    (rows, new), learned = _rows(name), _learned(name)
    classes, counts = np.unique(rows.y, return_counts=True)
    constant = np.broadcast_to(counts / len(rows.y), (len(new.y), len(classes)))
    linear = LogisticRegression(max_iter=1000).fit(rows.X, rows.y).predict_proba(new.X)
    best = min(np.mean(_losses(p, classes, new.y)) for p in (constant, linear))
    assert np.mean(_of_learned(learned, new)) < best + MAX_LOSS


def test_few_combinations_of_categories_are_as_probable_as_they_are_frequent():
    """There is nothing between them: new rows have known inputs."""
    (rows, new), learned = _rows("with_categories"), _learned("with_categories")
    codes, new_codes = (each.X @ [4, 2, 1] for each in (rows, new))
    yes = rows.y == "yes"
    of_code = {
        code: (np.sum(yes[codes == code]) + 0.5) / (np.sum(codes == code) + 1.0)
        for code in np.unique(codes)
    }
    p = np.array([of_code[code] for code in new_codes])
    frequent = _losses(np.column_stack([1.0 - p, p]), np.array(["no", "yes"]), new.y)
    differ = _of_learned(learned, new) - frequent
    assert np.mean(differ) < STANDARD_ERRORS * np.std(differ) / np.sqrt(NUM_NEW)


@every_set
def test_the_promise_is_kept(name):
    (rows, new), learned = _rows(name), _learned(name)
    losses = _of_learned(learned, new)
    promised = float(learned.summary().facts["NLL on rows not seen"])
    error = np.std(losses) * np.sqrt(1.0 / len(rows.y) + 1.0 / NUM_NEW)
    assert np.mean(losses) < promised + STANDARD_ERRORS * error


@every_set
def test_rows_that_repeat_are_left_out_together(name):
    """Labels of a row that is there twice say no more of others than one of them."""
    (rows, new), once = _rows(name), _learned(name)
    twice = gvi.learn((np.repeat(rows.X, 2, axis=0), np.repeat(rows.y, 2)))
    loss = np.mean(_of_learned(twice, new))
    # Its evidence counts twice, as that of independent observations would.
    assert loss < np.mean(_of_learned(once, new)) + 2.0 * MAX_LOSS


@every_set
def test_seeds_and_the_order_of_columns_hardly_matter(name):
    (rows, new), learned = _rows(name), _learned(name)
    p = learned.predict_proba(new.X)
    others = [
        _learned(name, seed=1).predict_proba(new.X),
        gvi.learn((rows.X[:, ::-1], rows.y)).predict_proba(new.X[:, ::-1]),
    ]
    for other in others:
        assert np.mean(np.abs(other - p)) < MAX_CHANGE


@pytest.mark.parametrize("N", [4, 8, 15, 30])
@pytest.mark.parametrize("name", ["linear", "noise"])
def test_few_labels_are_predicted_without_false_certainty(name, N):
    draw, _ = SETS[name]
    rng = np.random.default_rng(N)
    X, y = draw(rng, N)
    y[:2] = ["no", "yes"]
    new = draw(rng, NUM_NEW)
    losses = _of_learned(gvi.learn((X, y)), new)
    assert np.mean(losses) < np.log(2.0) + 0.4

"""`learn` on small sets and on what may be done to them: changes as they should be, or hardly any.

Run alone (`python -m tests.properties.test_learn`), it prints coverage and CRPS of all of them.
"""

from __future__ import annotations

import functools
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from tests.tolerances import ITERATIVE, STANDARD_ERRORS, assert_close

pytestmark = pytest.mark.slow

NUM_NEW = 1000
MAX_CHANGE = 0.1
"""Of the mean, in standard deviations of y, by what should make no difference."""
COVERAGE = 0.9


class Rows(NamedTuple):
    X: np.ndarray
    Y: np.ndarray


def _sine(rng, N):
    X = rng.uniform(-3.0, 3.0, size=(N, 1))
    return Rows(X, np.sin(2.0 * X) + 0.2 * rng.normal(size=X.shape))


def _linear(rng, N):
    X = rng.normal(size=(N, 6))
    return Rows(X, X @ [[1.0], [0.5], [-1.0], [2.0], [0.0], [0.0]] + 0.3 * rng.normal(size=(N, 1)))


def _friedman(rng, N):
    X = rng.uniform(size=(N, 6))
    f = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    return Rows(X, (f + 10.0 * X[:, 3] + 5.0 * X[:, 4] + rng.normal(size=N))[:, None])


def _step(rng, N):
    X = rng.uniform(-1.0, 1.0, size=(N, 2))
    return Rows(X, np.sign(X[:, :1]) + X[:, 1:] + 0.2 * rng.normal(size=(N, 1)))


def _fan(rng, N):
    X = rng.uniform(0.0, 1.0, size=(N, 2))
    return Rows(X, X[:, :1] + (0.05 + X[:, 1:]) * rng.normal(size=(N, 1)))


def _noise(rng, N):
    return Rows(rng.normal(size=(N, 3)), rng.normal(size=(N, 1)))


def _counts(rng, N):
    X = rng.normal(size=(N, 3))
    return Rows(X, rng.poisson(np.exp(1.0 + 0.5 * X[:, :1])).astype(float))


def _design(rng, N):
    X = rng.integers(0, 4, size=(N, 3)).astype(float)
    return Rows(X, X[:, :1] + np.sin(X[:, 1:2]) * X[:, 2:] + 0.5 * rng.normal(size=(N, 1)))


SETS = {
    "sine": (_sine, 60),
    "linear": (_linear, 80),
    "friedman": (_friedman, 150),
    "step": (_step, 100),
    "fan": (_fan, 200),
    "noise": (_noise, 60),
    "counts": (_counts, 120),
    "design": (_design, 200),
}
every_set = pytest.mark.parametrize("name", SETS)


@functools.cache
def _rows(name):
    """Return rows to learn from, and new ones."""
    draw, N = SETS[name]
    rng = np.random.default_rng(sorted(SETS).index(name))
    return draw(rng, N), draw(rng, NUM_NEW)


@functools.cache
def _learned(name, seed=0):
    return gvi.learn(_rows(name)[0], seed=seed)


def _predicted(learned, X):
    return [np.asarray(part) for part in learned.predict_y(X)]


def _coverage(learned, new):
    lower, upper = (np.asarray(end) for end in learned.predict_interval(new.X, COVERAGE))
    return float(np.mean((lower <= new.Y) & (upper >= new.Y)))


def _crps(learned, new):
    """Return the average over quantiles of the pinball loss, twice."""
    levels = (np.arange(20) + 0.5) / 20.0
    losses = []
    for level in levels[:10]:
        ends = learned.predict_interval(new.X, 1.0 - 2.0 * level)
        for tau, end in zip((level, 1.0 - level), ends, strict=True):
            error = new.Y - np.asarray(end)
            losses.append(np.mean(np.maximum(tau * error, (tau - 1.0) * error)))
    return 2.0 * float(np.mean(losses))


def _crps_of_constant(rows, new):
    law = scipy.stats.norm(np.mean(rows.Y), np.std(rows.Y, ddof=1))
    levels = (np.arange(20) + 0.5) / 20.0
    error = new.Y[..., None] - law.ppf(levels)
    return 2.0 * float(np.mean(np.maximum(levels * error, (levels - 1.0) * error)))


def _distance(one, other, X, scale):
    """Return how far means are apart, in units of y's standard deviation."""
    means = [_predicted(learned, X)[0] for learned in (one, other)]
    return float(np.sqrt(np.mean(np.square(means[0] - means[1])))) / scale


@every_set
def test_nothing_is_worse_than_the_constant(name):
    rows, new = _rows(name)
    assert _crps(_learned(name), new) < 1.05 * _crps_of_constant(rows, new)


def test_intervals_cover_what_they_promise():
    found = {name: _coverage(_learned(name), _rows(name)[1]) for name in SETS}
    assert all(0.8 <= coverage <= 0.97 for coverage in found.values()), found
    assert 0.86 <= np.mean(list(found.values())) <= 0.94, found


@every_set
def test_the_promise_is_kept(name):
    rows, new = _rows(name)
    promised = float(_learned(name).summary().facts["NLL on rows not seen"])
    densities = np.asarray(_learned(name).predict_log_density(new))
    error = np.std(densities) / np.sqrt(len(rows.X))
    assert -np.mean(densities) < promised + STANDARD_ERRORS * error


@every_set
def test_copies_change_nothing(name):
    rows, new = _rows(name)
    if name == "design":  # there rows of equal X differ in Y
        return
    for share in (1, 10):
        X, Y = (np.r_[part, part[: len(part) // share]] for part in rows)
        for found, once in zip(
            _predicted(gvi.learn((X, Y)), new.X), _predicted(_learned(name), new.X), strict=True
        ):
            assert_close(found, once, ITERATIVE)


@every_set
def test_a_gross_value_is_told_and_does_little(name):
    rows, new = _rows(name)
    Y = rows.Y.copy()
    Y[5] += 50.0 * np.std(Y)
    with pytest.warns(NumericsWarning, match="row 5"):
        learned = gvi.learn((rows.X, Y))
    assert _crps(learned, new) < 1.1 * _crps(_learned(name), new)


@every_set
@pytest.mark.parametrize("step", [0.1, 0.5, 1.0])
def test_rounded_values_are_covered(name, step):
    rows, new = _rows(name)
    delta = step * np.std(rows.Y)
    rounded, new = (r._replace(Y=delta * np.round(r.Y / delta)) for r in (rows, new))
    learned = gvi.learn(rounded)
    assert 0.8 <= _coverage(learned, new) <= 1.0
    lower, upper = (np.asarray(end) for end in learned.predict_interval(new.X, COVERAGE))
    assert np.mean(upper - lower) < 4.0 * np.std(new.Y)  # 3.3 of a constant
    assert _crps(learned, new) < 1.05 * _crps_of_constant(rounded, new)


@every_set
def test_units_hardly_matter(name):
    """Rounding decides between splits of trees that are equally good, and so a little."""
    rows, new = _rows(name)
    learned = gvi.learn((1000.0 * rows.X + 7.0, 0.01 * rows.Y - 3.0))
    mean, variance = _predicted(learned, 1000.0 * new.X + 7.0)
    expected = _predicted(_learned(name), new.X)
    change = 100.0 * (mean + 3.0) - expected[0]
    assert np.sqrt(np.mean(np.square(change))) < MAX_CHANGE * np.std(rows.Y)
    ratio = np.log(1e4 * variance / expected[1])
    assert np.sqrt(np.mean(np.square(ratio))) < np.log(1.25)


def test_far_from_the_data_less_is_known():
    rows, _ = _rows("sine")
    learned = _learned("sine")
    near, far = (_predicted(learned, X)[1] for X in (rows.X, rows.X + 20.0))
    assert np.min(far) > 2.0 * np.mean(near)


@pytest.mark.parametrize("name", ["sine"])
def test_constant_columns_and_copies_change_nothing_also_when_loaded(name, tmp_path):
    rows, new = _rows(name)

    def spoilt(X):
        return np.c_[np.full(len(X), 2.0), X, X[:, :1]]

    learned = gvi.learn((spoilt(rows.X), rows.Y))
    gvi.save(learned, tmp_path / "model")
    expected = _predicted(_learned(name), new.X)
    for model in (learned, gvi.load(tmp_path / "model")):
        for found, same in zip(_predicted(model, spoilt(new.X)), expected, strict=True):
            assert_close(found, same, ITERATIVE)


def test_the_seed_hardly_matters():
    changes = {}
    for name in SETS:
        rows, new = _rows(name)
        changes[name] = _distance(_learned(name), _learned(name, seed=1), new.X, np.std(rows.Y))
    assert sum(change > MAX_CHANGE for change in changes.values()) <= 1, changes


@pytest.mark.parametrize("N", [3, 5, 8, 13, 25, 40])
@pytest.mark.parametrize("name", ["sine", "linear", "noise", "design"])
def test_few_rows_are_predicted_without_false_certainty(name, N):
    draw, _ = SETS[name]
    rows, new = draw(np.random.default_rng(N), N), draw(np.random.default_rng(99), NUM_NEW)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericsWarning)
        learned = gvi.learn(rows)
    mean, variance = _predicted(learned, new.X)
    assert np.all(np.isfinite(mean))
    assert np.all(variance > 0.0)
    assert _crps(learned, new) < 1.5 * _crps_of_constant(rows, new)


if __name__ == "__main__":
    for each in SETS:
        rows, new = _rows(each)
        learned = _learned(each)
        print(  # noqa: T201
            f"{each:10} coverage {_coverage(learned, new):.3f} CRPS {_crps(learned, new):8.4f}, of "
            f"a constant {_crps_of_constant(rows, new):8.4f}  weights {learned.weights.round(2)}"
        )

"""Positive y, whose errors are relative, and functions of log x: `learn` finds them out."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from scipy import stats

import gpflow_gvi as gvi
from gpflow_gvi.learning.rows.log_scale import LogScale
from tests.tolerances import assert_close, assert_estimates

SD = 0.3


def _rows(rng, count):
    X = rng.uniform(-2.0, 2.0, size=(count, 1))
    return X, np.exp(np.sin(2.0 * X) + X + SD * rng.normal(size=X.shape))


@pytest.fixture(scope="module")
def learned():
    return gvi.learn(_rows(np.random.default_rng(1), 150))


def _is_of_logs(learned):
    return [isinstance(part.outputs, LogScale) for part in learned.parts]


def test_it_is_near_the_truth(learned, rng):
    X, Y = _rows(rng, 2000)
    of_truth = stats.lognorm(SD, scale=np.exp(np.sin(2.0 * X) + X))
    found = -np.mean(learned.predict_log_density((X, Y)))
    assert found + np.mean(of_truth.logpdf(Y)) < 0.1
    for level in (0.05, 0.5, 0.95):
        below = np.mean(np.asarray(_quantile(learned, X, level)) > Y)
        assert abs(below - level) < 0.1
    assert any(_is_of_logs(learned))
    assert "of log y" in str(learned.summary())


def _quantile(learned, X, level):
    ends = learned.predict_interval(X, abs(2.0 * level - 1.0) or 1e-9)
    return ends[0] if level < 0.5 else ends[1]


def test_moments_density_and_quantiles_are_of_the_samples(learned):
    X = np.array([[-1.5], [0.2], [1.5]])
    samples = learned.predict_y_samples(X, 40_000, seed=0)[..., 0]  # [S, N]
    assert np.all(samples > 0.0) or not all(_is_of_logs(learned))
    mean, variance = (np.asarray(part)[:, 0] for part in learned.predict_y(X))
    assert_estimates(samples.mean(axis=0), mean, samples.std(axis=0) / 200.0)
    for level in (0.05, 0.95):
        below = np.mean(samples < np.asarray(_quantile(learned, X, level))[:, 0], axis=0)
        assert_estimates(below, level, np.sqrt(level * (1.0 - level) / 40_000))
    y = np.linspace(-30.0, 60.0, 90_001)
    at = np.full((len(y), 1), X[1, 0]), y[:, None]
    density = np.exp(np.asarray(learned.predict_log_density(at))) * (y[1] - y[0])
    assert abs(np.sum(density) - 1.0) < 2e-3
    assert abs(np.sum(density * np.square(y - mean[1])) / variance[1] - 1.0) < 0.02
    pit = learned.pit(X, np.median(samples, axis=0)[:, None])
    assert_estimates(pit[:, 0], 0.5, np.sqrt(0.25 / 40_000))


def test_far_inputs_do_not_explode(learned):
    """Log y is a parabola there at most, and y grows as it does, not exponentially."""
    X, (_, Y) = np.array([[1e3], [-1e6]]), _rows(np.random.default_rng(1), 150)
    mean, variance = learned.predict_y(X)
    assert np.all(np.abs(mean) < Y.max() * np.square(X))
    assert np.all(np.isfinite(variance))


def test_it_is_saved_and_exported(learned, tmp_path):
    X = np.linspace(-2.0, 2.0, 7)[:, None]
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    for ours, theirs in zip(loaded.predict_y(X), learned.predict_y(X), strict=True):
        assert_close(ours, theirs)
    assert_close(loaded.predict_interval(X)[1], learned.predict_interval(X)[1])


def test_rows_that_are_not_positive(learned):
    X = np.array([[0.0]])
    assert not np.isnan(learned.predict_log_density((X, [[-1.0]])))
    with pytest.raises(ValueError, match=r"not positive.*Learn from all rows"):
        learned.update(X, np.array([[0.0]]))


@pytest.mark.parametrize("name", ["calibration_fraction", "validation_fraction"])
def test_rows_that_are_set_aside_change_no_candidates(rng, name):
    learned = gvi.learn(_rows(rng, 80), **{name: 0.25})
    assert all(_is_of_logs(learned))
    X, Y = _rows(rng, 1000)
    lower, upper = learned.predict_interval(X, 0.9)
    assert np.all(np.asarray(lower) > 0.0)
    # The coverage by 20 rows has a Beta law of standard deviation 0.06.
    assert np.mean((lower <= Y) & (upper >= Y)) > 0.75


def test_rows_to_validate_with_that_are_not_positive_are_predicted(rng):
    """They have no logarithms, though all rows to learn from have."""
    X, Y = _rows(rng, 60)
    validation = X[:20], np.where(Y[:20] < np.median(Y), 0.0, Y[:20])
    learned = gvi.learn((X[20:], Y[20:]), validation_data=validation)
    assert np.all(np.isfinite(learned.predict_log_density(validation)))
    assert not any(_is_of_logs(learned))


@pytest.mark.slow
def test_y_of_either_sign_or_a_narrow_range_is_learned_as_it_is(rng):
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    for shift in (0.0, 100.0):
        Y = shift + np.sin(X) + 0.1 * rng.normal(size=X.shape)
        assert not any(_is_of_logs(gvi.learn((X, Y))))


@pytest.mark.slow
def test_a_likelihood_of_y_is_kept(rng):
    X, Y = _rows(rng, 60)
    learned = gvi.learn((X, Y), likelihood=gpflow.likelihoods.Gaussian(0.1))
    assert not any(_is_of_logs(learned))


@pytest.mark.slow
def test_a_function_of_the_logarithm_of_x_is_learned_as_if_logarithms_were_given(rng):
    """Of x itself it has all of its waves near zero."""
    X = rng.lognormal(sigma=2.0, size=(400, 2))
    f = np.sin(2.0 * np.log(X[:, 0])) + 0.5 * np.log(X[:, 1])
    Y = (f + 0.2 * rng.normal(size=400))[:, None]
    nll = {}
    for name, rows in {"x": X, "log x": np.log(X)}.items():
        learned = gvi.learn((rows[:200], Y[:200]))
        nll[name] = -np.mean(learned.predict_log_density((rows[200:], Y[200:])))
    assert nll["x"] < nll["log x"] + 0.1

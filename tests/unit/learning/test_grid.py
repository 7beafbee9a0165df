"""Values of y on a grid: those that were rounded to it, and those that were set."""

from __future__ import annotations

import numpy as np
import pytest

import gpflow_gvi as gvi

STEP = 0.1


def _levels_and_readings(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels of an experiment, and two instruments that read them almost without noise."""
    rng = np.random.default_rng(seed)
    Y = STEP * rng.integers(0, 20, size=(size, 1))
    X = np.hstack([np.sin(0.7 * Y), np.log1p(Y)]) + 1e-4 * rng.normal(size=(size, 2))
    return X, Y


@pytest.mark.slow
def test_levels_that_were_set_are_predicted_as_well_as_they_can_be():
    learned = gvi.learn(_levels_and_readings(200, 0))
    X, Y = _levels_and_readings(200, 1)
    mean, variance = learned.predict_y(X)
    of_rounding = STEP / np.sqrt(12.0)
    assert np.sqrt(np.mean(np.square(Y - mean))) < 0.1 * of_rounding
    assert np.sqrt(np.mean(variance)) < 0.1 * of_rounding
    assert np.mean(learned.predict_log_density((X, Y))) > np.log(1.0 / STEP) + 2.0


@pytest.mark.slow
def test_values_that_were_rounded_have_the_noise_of_rounding():
    rng = np.random.default_rng(2)
    X = rng.uniform(-2.0, 2.0, size=(200, 1))
    Y = STEP * np.round(np.sin(2.0 * X) / STEP)
    learned = gvi.learn((X, Y))
    _, variance = learned.predict_y(rng.uniform(-2.0, 2.0, size=(200, 1)))
    assert np.mean(np.sqrt(variance)) > 0.8 * STEP / np.sqrt(12.0)

"""Positive observations on a log scale: a map with a density, moments and bounded growth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate, stats

from gpflow_gvi.learning.rows.log_scale import LogScale
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.learning.rows.targets import in_units
from tests.tolerances import ITERATIVE, assert_close


@pytest.fixture
def units(rng):
    return LogScale.of(np.exp(rng.normal(size=(50, 2)) * [1.0, 2.0] + [0.0, 3.0]))


def test_standard_units_have_mean_zero_and_deviation_one(rng):
    Y = rng.gamma(1.0, size=(100, 2))
    z = LogScale.of(Y).standard(Y).numpy()
    assert_close(z.mean(axis=0), 0.0, scale=1.0)
    assert_close(z.std(axis=0), 1.0)


def test_there_and_back(units):
    Y = units.top * np.array([[1e-8], [0.3], [1.0], [1.5], [100.0]])
    assert_close(units.original(units.standard(Y)), Y)


def test_a_value_that_is_rounded_to_zero_has_a_density(rng):
    """Whole numbers from one on: zero stands for less than a half, other numbers for nothing."""
    units = LogScale.of(rng.integers(1, 9, size=(100, 1)).astype(float))
    z = units.standard(np.array([[0.0], [-1.0]]))
    assert_close(units.original(z)[0], [0.25])
    assert np.isfinite(units.log_derivative(z)).tolist() == [True, False]
    of_any = LogScale.of(rng.gamma(1.0, size=(100, 1)))
    assert np.isneginf(of_any.log_derivative(of_any.standard(np.zeros((1, 1)))))


def test_the_slope_is_the_derivative(units):
    Y = tf.constant(units.top * np.array([[0.01], [0.5], [1.0], [7.0]]))
    with tf.GradientTape() as tape:
        tape.watch(Y)
        total = tf.reduce_sum(units.scaled(Y))
    z = units.scaled(Y)
    assert_close(units.slope(z), tape.gradient(total, Y))
    assert_close(units.log_derivative(z), np.sum(np.log(units.slope(z)), axis=1), scale=1.0)


def test_what_is_not_positive_has_no_density(units):
    z = units.standard(np.array([[0.0, 1.0], [-3.0, 2.0], [1.0, 1.0]]))
    assert np.all(np.isfinite(z))
    assert np.isneginf(units.log_derivative(z)).tolist() == [True, True, False]


def test_beyond_the_data_predictions_grow_as_the_process_does(units):
    """The exponential of ten standard deviations would be 22,000 times the data, or 5e8 times."""
    far = units.original(10.0 * np.ones((1, 2)))
    assert np.all(far < 12.0 * units.linear.scale * units.top + units.top)


@pytest.mark.parametrize(
    ("df", "mean", "variance"),
    [(None, -1.0, 0.04), (2.5, 0.5, 1.0), (5.0, 3.0, 4.0), (None, 3.0, 4.0)],
)
def test_moments_are_integrals(df, mean, variance):
    units = LogScale(np.array([5.0]), Scaling(np.array([-1.0]), np.array([0.7])), np.array([2.0]))
    law = stats.norm(mean, np.sqrt(variance))
    if df is not None:
        law = stats.t(df, mean, np.sqrt(variance * (df - 2.0) / df))

    def moment(power):
        kink = 1.0 / 0.7
        ends = [*law.ppf([0.0, 1e-3, 0.5, 1.0 - 1e-3]).tolist(), kink, np.inf]
        parts = np.unique(ends)

        def f(z):
            return law.pdf(z) * units.original(np.array([[z]])).numpy()[0, 0] ** power

        return sum(integrate.quad(f, a, b, limit=200)[0] for a, b in itertools.pairwise(parts))

    at = np.array([[mean]]), np.array([[variance]])
    found = [part.numpy()[0, 0] for part in units.moments(*at, None if df is None else [df])]
    first, second = moment(1), moment(2)
    tolerance = 2e-3 if df == 2.5 else 1e-4  # with 2.5 degrees of freedom the rest is far away
    np.testing.assert_allclose(found, [first, second - first**2], rtol=tolerance)


def test_variances_of_a_joint_law_are_those_of_each(units, rng):
    root = rng.normal(size=(2, 3, 3))
    covariance = root @ np.swapaxes(root, 1, 2)
    mean = rng.normal(size=(3, 2))
    m, C = in_units(units, mean, covariance)
    variance = np.diagonal(covariance, axis1=1, axis2=2).T
    exact = units.moments(mean, variance)
    assert_close(m, exact[0])
    assert_close(np.diagonal(C, axis1=1, axis2=2).T, exact[1], ITERATIVE)
    assert np.all(np.linalg.eigvalsh(C) > 0.0)

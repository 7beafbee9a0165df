"""Heavy tails of predictions: the law against scipy, what is found against samples of known law."""

from __future__ import annotations

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow.functions import Function
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from scipy import integrate, stats

import gpflow_gvi as gvi
from gpflow_gvi.calibration import tails
from gpflow_gvi.calibration.tempering import tempered_by
from gpflow_gvi.likelihoods import HeavyTailed, with_moments
from tests import networks
from tests.tolerances import P_VALUE, assert_close, assert_estimates

MEAN, VARIANCE = np.array([[0.3, -1.0], [2.0, 0.0]]), np.array([[0.5, 0.1], [0.02, 1.0]])
NOISE, DF = np.array([0.2, 0.05]), np.array([3.0, 8.0])
X = np.zeros((2, 1))
Y = np.array([[-6.0, -0.9], [2.1, 5.0]])


@functools.cache
def learned() -> tuple[gvi.learning.Learned, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.uniform(-2.0, 2.0, (400, 1))
    y = np.sin(2.0 * x) + 0.2 * rng.standard_t(2.5, x.shape)
    model = gvi.learn((x[:300], 10.0 * y[:300]), kernel=SquaredExponential(), noise="auto")
    return model, x[300:], 10.0 * y[300:]


def test_the_density_is_the_mixture_over_factors_of_the_variance():
    found = HeavyTailed(NOISE, DF).predict_log_density(X, MEAN, VARIANCE, Y)

    def density(n: int, j: int) -> float:
        total, half = VARIANCE[n, j] + NOISE[j], 0.5 * DF[j]
        precision = stats.gamma(half, scale=1.0 / (half - 1.0))

        def integrand(log_p: float) -> float:
            p = np.exp(log_p)
            sd = np.sqrt(total / p)
            return p * precision.pdf(p) * stats.norm.pdf(Y[n, j], MEAN[n, j], sd)

        return integrate.quad(integrand, -30.0, 5.0, epsabs=0.0, epsrel=1e-10, limit=500)[0]

    expected = [sum(np.log(density(n, j)) for j in range(2)) for n in range(2)]
    assert_close(found, expected)


def test_mean_and_variance_are_those_under_gaussian_noise():
    mean, variance = HeavyTailed(NOISE, DF).predict_mean_and_var(X, MEAN, VARIANCE)
    assert_close(mean, MEAN)
    assert_close(variance, VARIANCE + NOISE)
    of_law = with_moments(HeavyTailed(NOISE, DF), mean, variance)
    assert_close(of_law.variance(), variance)


def test_expectations_over_q_are_integrals_of_the_log_density_given_f():
    likelihood = HeavyTailed(0.3, 4.0)
    rows = (X, MEAN[:, :1], VARIANCE[:, :1], Y[:, :1])
    scale = np.sqrt(0.3 / 2.0)

    def integrand(f: float, n: int) -> float:
        log_density = stats.t.logpdf(Y[n, 0], 4.0, f, scale)
        return float(log_density * stats.norm.pdf(f, MEAN[n, 0], np.sqrt(VARIANCE[n, 0])))

    expected = [integrate.quad(integrand, -8.0, 8.0, (n,), points=[0.3, 2.0])[0] for n in (0, 1)]
    assert_close(likelihood.variational_expectations(*rows), expected)


def test_samples_have_the_law_of_y():
    likelihood = HeavyTailed(NOISE, DF)
    rng = np.random.default_rng(0)
    total = VARIANCE + NOISE
    gaussian = tf.constant(MEAN + np.sqrt(total) * rng.standard_normal((20_000, 2, 2)))
    samples = likelihood.stretched(gaussian, tf.constant(MEAN), [1, 2]).numpy()
    for n, j in np.ndindex(2, 2):
        scale = np.sqrt(total[n, j] * (DF[j] - 2.0) / DF[j])
        law = stats.t(DF[j], MEAN[n, j], scale)
        assert stats.kstest(samples[:, n, j], law.cdf).pvalue > P_VALUE
    assert stats.kstest(gaussian.numpy()[:, 0, 0], law.cdf).pvalue < P_VALUE


WIDE = (1e-3, 1e4)
"""Bounds of a factor that hardly bind."""


@pytest.mark.parametrize("df", [3.0, 5.0, 12.0])
def test_scale_and_degrees_of_freedom_are_those_of_the_errors(df):
    z = np.random.default_rng(1).standard_t(df, 20_000)
    squares = 7.0 * np.square(z)
    found = tails.scale_and_degrees_of_freedom(squares[None], WIDE)
    of_tenths = [
        tails.scale_and_degrees_of_freedom(part[None], WIDE) for part in np.split(squares, 10)
    ]
    logs, expected = np.log([found, *of_tenths]), np.log([7.0 * df / (df - 2.0), df])
    for j in range(2):
        assert_estimates(logs[0, j], expected[j], stats.sem(logs[1:, j]))


@pytest.mark.slow
def test_scale_and_degrees_of_freedom_have_the_greatest_posterior_density():
    """That of the best of a fine grid, with the priors Gamma(2, 0.1) and N(0, ½²) of log α."""
    z = 1.5 * np.random.default_rng(3).standard_t(8.0, 150)

    def log_posterior(log_factor: float, v: float) -> float:
        density = stats.t(v, scale=np.exp(0.5 * log_factor) * np.sqrt(1.0 - 2.0 / v)).logpdf(z)
        return np.sum(density) + np.log(v) - 0.1 * v - 2.0 * log_factor**2

    factor, df = tails.scale_and_degrees_of_freedom(np.square(z[None]), WIDE)
    best = max(
        log_posterior(log_factor, v)
        for log_factor in np.log(factor) + np.linspace(-0.3, 0.3, 61)
        for v in df * np.geomspace(0.5, 2.0, 61)
    )
    assert log_posterior(np.log(factor), df) >= best


def test_of_gaussian_errors_nearly_nothing_is_lost_and_a_far_one_is_not_excluded():
    rng = np.random.default_rng(2)
    z, heavy = rng.standard_normal(500), rng.standard_t(3.0, 500)

    def law_of(errors):
        factor, df = tails.scale_and_degrees_of_freedom(np.square(errors[None]), WIDE)
        return stats.t(df, scale=np.sqrt(factor * (1.0 - 2.0 / df)))

    law, of_heavy = law_of(z), law_of(heavy)
    # Less than a tenth of what the law of the heavy errors would lose.
    lost, by_heavy = (np.mean(stats.norm.logpdf(z) - each.logpdf(z)) for each in (law, of_heavy))
    assert lost < 0.1 * by_heavy
    assert law.logpdf(20.0) > 0.5 * stats.norm.logpdf(20.0)


def test_errors_of_zero_have_a_scale():
    factor, df = tails.scale_and_degrees_of_freedom(np.zeros((1, 30)), WIDE)
    assert 1e-3 <= factor < 1.0
    assert np.isfinite(df)


def test_learn_finds_heavy_tails_where_new_rows_have_them():
    model, x, y = learned()
    assert isinstance(model.likelihood, HeavyTailed)
    assert "Student's t" in str(model.summary())
    mean, variance = (part.numpy() for part in model.predict_y(x))
    gaussian = stats.norm.logpdf(y, mean, np.sqrt(variance))
    density = model.predict_log_density((x, y)).numpy()
    gain = density - gaussian[:, 0]
    assert np.mean(gain) > stats.sem(gain)
    df = model.likelihood.df.numpy()
    scale = np.sqrt(variance * (df - 2.0) / df)
    assert_close(density, stats.t.logpdf(y, df, mean, scale)[:, 0])
    lower, upper = model.predict_interval(x, 0.8)
    assert_close(upper, stats.t.ppf(0.9, df, mean, scale))
    assert_close(lower, stats.t.ppf(0.1, df, mean, scale))
    samples = model.predict_y_samples(x[:2], 20_000, seed=1)
    for n in range(2):
        law = stats.t(df, mean[n], scale[n])
        assert stats.kstest(samples[:, n, 0], law.cdf).pvalue > P_VALUE


def test_heavy_tails_stay_with_further_steps(tmp_path):
    model, x, y = learned()
    df = model.likelihood.df.numpy()
    model.save(tmp_path / "model")
    again = gvi.load(tmp_path / "model")
    np.testing.assert_array_equal(
        again.predict_log_density((x, y)), model.predict_log_density((x, y))
    )
    updated = model.update(x[:5], y[:5]).likelihood
    assert isinstance(updated, HeavyTailed)
    np.testing.assert_array_equal(updated.df, df)
    tempered = tempered_by(model.model, np.array([2.0])).likelihood
    np.testing.assert_array_equal(tempered.df, df)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [None, SquaredExponential()])
def test_a_network_that_is_the_mean_has_tails_unless_a_kernel_is_chosen(kernel, rng):
    x = np.linspace(-2.0, 2.0, 200)[:, None]
    y = np.sin(x) + 0.1 * rng.standard_t(2.5, x.shape)
    model = gvi.learn((x, y), mean=networks.dense(keras, D=1), kernel=kernel, epochs=1)
    assert isinstance(model.likelihood, HeavyTailed) == (kernel is None)
    assert not isinstance(model.likelihood.variance, Function)


def test_noise_that_is_chosen_is_gaussian():
    _, x, y = learned()
    model = gvi.learn((x, y), noise="constant", effort="fast")
    assert type(model.likelihood) is Gaussian


@pytest.mark.parametrize("freedom", [0.2, 1.0, 2.0, 3.0, 12.0])
def test_few_errors_are_expected_in_the_interval_of_students_t(freedom):
    """Also where ν₀ is below the least degrees of freedom that a law may have: as for ν₀ = 1."""
    law = stats.t(max(freedom, 1.0), scale=np.sqrt(11.0 / 9.0))
    df = max(freedom, tails.MIN_DF)
    deviation = np.sqrt(tails.expected_factor(freedom, 10))
    ours = stats.t(df, scale=deviation * np.sqrt((df - 2.0) / df))
    assert_close(ours.interval(0.9), law.interval(0.9))
    factor, found = tails.scale_and_degrees_of_freedom(np.ones((1, 10)), (1e-3, 5.0), freedom)
    assert 1.0 < factor < 5.0 * deviation**2
    assert found < df + 1e-9

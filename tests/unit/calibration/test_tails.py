"""Heavy tails of predictions: the law against scipy, what is found against samples of known law."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from gpflow.kernels import SquaredExponential
from gpflow.likelihoods import Gaussian
from scipy import integrate, stats

import gpflow_gvi as gvi
from gpflow_gvi.calibration import tails
from gpflow_gvi.calibration.tempering import tempered_by
from gpflow_gvi.likelihoods import HeavyTailed
from gpflow_gvi.prediction import predictive_law

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
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_mean_and_variance_are_those_under_gaussian_noise():
    mean, variance = HeavyTailed(NOISE, DF).predict_mean_and_var(X, MEAN, VARIANCE)
    np.testing.assert_allclose(mean, MEAN)
    np.testing.assert_allclose(variance, VARIANCE + NOISE)
    of_law = predictive_law.with_moments(HeavyTailed(NOISE, DF), mean, variance)
    np.testing.assert_allclose(of_law.variance(), variance, rtol=1e-12)


def test_expectations_over_q_are_integrals_of_the_log_density_given_f():
    likelihood = HeavyTailed(0.3, 4.0)
    rows = (X, MEAN[:, :1], VARIANCE[:, :1], Y[:, :1])
    scale = np.sqrt(0.3 / 2.0)

    def integrand(f: float, n: int) -> float:
        log_density = stats.t.logpdf(Y[n, 0], 4.0, f, scale)
        return float(log_density * stats.norm.pdf(f, MEAN[n, 0], np.sqrt(VARIANCE[n, 0])))

    expected = [integrate.quad(integrand, -8.0, 8.0, (n,), points=[0.3, 2.0])[0] for n in (0, 1)]
    np.testing.assert_allclose(likelihood.variational_expectations(*rows), expected, rtol=1e-4)


def test_samples_have_the_law_of_y():
    likelihood = HeavyTailed(NOISE, DF)
    rng = np.random.default_rng(0)
    total = VARIANCE + NOISE
    gaussian = tf.constant(MEAN + np.sqrt(total) * rng.standard_normal((20_000, 2, 2)))
    samples = likelihood.stretched(gaussian, tf.constant(MEAN), [1, 2]).numpy()
    for n, j in np.ndindex(2, 2):
        scale = np.sqrt(total[n, j] * (DF[j] - 2.0) / DF[j])
        law = stats.t(DF[j], MEAN[n, j], scale)
        assert stats.kstest(samples[:, n, j], law.cdf).pvalue > 1e-3
    assert stats.kstest(gaussian.numpy()[:, 0, 0], law.cdf).pvalue < 1e-6


@pytest.mark.parametrize("df", [3.0, 5.0, 12.0])
def test_degrees_of_freedom_are_those_of_the_errors(df):
    z = np.random.default_rng(1).standard_t(df, (20_000, 1))
    found = tails.degrees_of_freedom(7.0 * np.square(z))
    assert found is not None
    np.testing.assert_allclose(found, [df], rtol=0.2)


def test_degrees_of_freedom_have_the_greatest_posterior_density():
    """On a grid, with the prior Gamma(2, 0.1)."""
    z = np.random.default_rng(3).standard_t(8.0, 150)
    grid = np.geomspace(tails.MIN_DF, tails.MAX_DF, 400)
    of_unit_variance = z / np.sqrt(np.mean(np.square(z)))
    logs = [np.sum(stats.t(v, scale=np.sqrt(1.0 - 2.0 / v)).logpdf(of_unit_variance)) for v in grid]
    best = grid[np.argmax(np.array(logs) + np.log(grid) - 0.1 * grid)]
    np.testing.assert_allclose(tails.degrees_of_freedom(np.square(z[:, None])), [best], rtol=0.02)


def test_of_gaussian_errors_nearly_nothing_is_lost_and_a_far_one_is_not_excluded():
    rng = np.random.default_rng(2)
    z, heavy = rng.standard_normal((500, 1)), rng.standard_t(3.0, (500, 1))
    found = tails.degrees_of_freedom(np.square(np.hstack([z, heavy])))
    assert found is not None
    law = stats.t(found[0], scale=np.sqrt(1.0 - 2.0 / found[0]))
    assert np.mean(law.logpdf(z)) > np.mean(stats.norm.logpdf(z)) - 0.005
    assert law.logpdf(20.0) > -60.0  # a Gaussian's is -201
    assert found[1] == pytest.approx(3.0, rel=0.3)  # each output has its own


def test_errors_of_zero_have_no_tails():
    assert tails.degrees_of_freedom(np.zeros((30, 1))) is None


def test_learn_finds_heavy_tails_where_new_rows_have_them():
    model, x, y = learned()
    assert isinstance(model.likelihood, HeavyTailed)
    assert "Student's t" in str(model.summary())
    mean, variance = (part.numpy() for part in model.predict_y(x))
    gaussian = stats.norm.logpdf(y, mean, np.sqrt(variance))
    density = model.predict_log_density((x, y)).numpy()
    assert np.mean(density) > np.mean(gaussian) + 0.05
    df = model.likelihood.df.numpy()
    scale = np.sqrt(variance * (df - 2.0) / df)
    np.testing.assert_allclose(density, stats.t.logpdf(y, df, mean, scale)[:, 0], rtol=1e-6)
    lower, upper = model.predict_interval(x, 0.8)
    np.testing.assert_allclose(upper, stats.t.ppf(0.9, df, mean, scale), rtol=1e-6)
    np.testing.assert_allclose(lower, stats.t.ppf(0.1, df, mean, scale), rtol=1e-6)
    samples = model.predict_y_samples(x[:2], 20_000, seed=1)
    for n in range(2):
        law = stats.t(df, mean[n], scale[n])
        assert stats.kstest(samples[:, n, 0], law.cdf).pvalue > 1e-3


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


def test_noise_that_is_chosen_is_gaussian():
    _, x, y = learned()
    model = gvi.learn((x, y), noise="constant", effort="fast")
    assert type(model.likelihood) is Gaussian

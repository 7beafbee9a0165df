"""What an observation is worth: against simulation and quadrature."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from scipy import integrate, special, stats

from gpflow_gvi.prediction import acquisition
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

X = np.linspace(0.0, 1.0, 3)[:, None]
MEAN = np.array([[0.0], [0.8], [-1.0]])
COVARIANCE = np.array([[[0.3, 0.1, 0.0], [0.1, 1.0, 0.0], [0.0, 0.0, 0.05]]])


class Model:
    """A model whose predictions are given."""

    def __init__(self, likelihood=None, mean=MEAN):
        self.likelihood = likelihood
        self.mean = tf.constant(mean)

    def predict_f(self, X, full_cov=False):
        variance = np.diag(COVARIANCE[0])[:, None] + np.zeros_like(self.mean)
        variance = variance.astype(self.mean.dtype.as_numpy_dtype)
        return self.mean, tf.constant(COVARIANCE if full_cov else variance)

    def predict_y(self, X):
        return self.likelihood.predict_mean_and_var(X, *self.predict_f(X))


def test_improvements_are_those_of_simulated_functions(rng):
    sd = np.sqrt(np.diag(COVARIANCE[0]))
    draws = MEAN[:, 0] + sd * rng.normal(size=(400_000, 3))
    by_kind = {
        "expected_improvement": np.maximum(0.2 - draws, 0.0),
        "probability_of_improvement": draws < 0.2,
    }
    for kind, of_draws in by_kind.items():
        found = acquisition.acquire(Model(), X, kind, best=0.2)
        error = of_draws.std(axis=0) / np.sqrt(len(draws)) + 1.0 / len(draws)
        assert_estimates(of_draws.mean(axis=0), found, error)
    least = acquisition.acquire(Model(), X, "probability_of_improvement")
    assert_close(least[2], 0.5)  # the smallest mean is itself a candidate
    bound = acquisition.acquire(Model(), X, "upper_confidence_bound", beta=1.0)
    assert_close(bound, sd - MEAN[:, 0])


def test_draws_have_the_joint_law_of_f():
    S, C = 4000, COVARIANCE[0]
    draws = [acquisition.acquire(Model(), X, "thompson", seed=seed) for seed in range(S)]
    variance = np.diag(C)
    assert_estimates(np.mean(draws, axis=0), -MEAN[:, 0], np.sqrt(variance / S))
    error = np.sqrt((np.outer(variance, variance) + C**2) / S)
    assert_estimates(np.cov(np.transpose(draws)), C, error)


def test_information_under_gaussian_noise_is_the_difference_of_entropies():
    found = acquisition.acquire(Model(likelihoods.Gaussian(0.2)), X, "bald")
    v = np.diag(COVARIANCE[0])
    expected = stats.norm.entropy(0.0, np.sqrt(v + 0.2)) - stats.norm.entropy(0.0, np.sqrt(0.2))
    assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("level", [0.0, 3.0, 5.0])
def test_information_of_counts_is_a_double_sum(level, precision):
    """Of counts about 1, 20 and 150, of which the last are so many that not all are summed."""
    mean = MEAN + level
    with gpflow.config.as_context(gpflow.config.Config(float=precision)):
        found = acquisition.information(Model(likelihoods.Poisson(), mean.astype(precision)), X)
    y = np.arange(60_000)
    for n in range(3):
        m, s = mean[n, 0], np.sqrt(COVARIANCE[0, n, n])
        f = np.linspace(m - 6 * s, m + 6 * s, 401)
        w = stats.norm.pdf(f, m, s)
        w /= w.sum()
        given_f = stats.poisson.pmf(y[:, None], np.exp(f))
        expected = special.entr(given_f @ w).sum() - special.entr(given_f).sum(axis=0) @ w
        assert_close(found[n], expected, ITERATIVE, precision=precision)


def test_equal_candidates_have_equal_information():
    mean = np.zeros((3, 1))
    model = Model(likelihoods.Poisson(), mean)
    model.predict_f = lambda X: (tf.constant(mean), tf.ones((3, 1), tf.float64))
    found = acquisition.information(model, X)
    assert_close(found, found[0])


CONTINUOUS = {
    "student": (likelihoods.StudentT(0.4), lambda f: stats.t(3, loc=f, scale=0.4)),
    "gamma": (likelihoods.Gamma(shape=2.0), lambda f: stats.gamma(2.0, scale=np.exp(f))),
    "exponential": (likelihoods.Exponential(), lambda f: stats.expon(scale=np.exp(f))),
    "beta": (
        likelihoods.Beta(invlink=tf.sigmoid, scale=30.0),
        lambda f: stats.beta(30.0 * special.expit(f), 30.0 * special.expit(-f)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_information_of_numbers_is_a_difference_of_entropies(name):
    """That of y, by Monte Carlo, and the mean of that given f."""
    likelihood, given_f = CONTINUOUS[name]
    found = acquisition.information(Model(likelihood), X)
    rng = np.random.default_rng(3)
    for n in range(3):
        m, s = MEAN[n, 0], np.sqrt(COVARIANCE[0, n, n])
        f = rng.normal(m, s, 4000)
        y = given_f(f).rvs(random_state=rng)
        points = np.linspace(-6.0, 6.0, 241)
        weights = stats.norm.pdf(points) / np.sum(stats.norm.pdf(points))
        of_y = given_f((m + s * points)[:, None]).pdf(y)
        gains = given_f(f).logpdf(y) - np.log(weights @ of_y)
        assert_estimates(found[n], gains.mean(), gains.std() / np.sqrt(len(gains)))


def _of_small_amount(t, f):
    """log p(y | f) dy/dt of amounts of shape 0.3, for t = log y."""
    return 0.3 * (t - f) - np.exp(np.minimum(t - f, 700.0)) - special.gammaln(0.3)


def _of_fraction(t, f):
    """The same for fractions of scale 5 under GPflow's link, for t = logit y."""
    p = 0.001 + 0.998 * stats.norm.cdf(f)
    a, b = 5.0 * p, 5.0 * (1.0 - p)
    return a * special.log_expit(t) + b * special.log_expit(-t) - special.betaln(a, b)


@pytest.mark.parametrize(
    ("likelihood", "log_density"),
    [
        (likelihoods.Gamma(shape=0.3), _of_small_amount),
        (likelihoods.Beta(scale=5.0), _of_fraction),
    ],
)
def test_information_of_numbers_close_to_an_end(likelihood, log_density):
    """Much of their law is further from the rest than any even grid resolves, or a float does."""
    found = acquisition.information(Model(likelihood), X)
    u = np.linspace(-12.0, 12.0, 4001)
    t, dt = np.sinh(u), np.cosh(u) * (u[1] - u[0])
    for n in range(3):
        f = np.linspace(-8.0, 8.0, 401)[:, None]
        w = stats.norm.pdf(f) / stats.norm.pdf(f).sum()
        logs = log_density(t, MEAN[n, 0] + np.sqrt(COVARIANCE[0, n, n]) * f)
        of_y = special.logsumexp(logs, axis=0, b=w)
        expected = np.sum(w * np.exp(logs) * (logs - of_y) * dt)
        np.testing.assert_allclose(found[n], expected, rtol=0.02)


def test_information_of_a_class_is_an_integral():
    found = acquisition.acquire(Model(likelihoods.Bernoulli(invlink=tf.sigmoid)), X, "bald")

    def entropy(p):
        return stats.bernoulli.entropy(p)

    for n in range(3):
        m, s = MEAN[n, 0], np.sqrt(COVARIANCE[0, n, n])

        def average(of, m=m, s=s):
            return integrate.quad(
                lambda f: of(1.0 / (1.0 + np.exp(-f))) * stats.norm.pdf(f, m, s),
                m - 8 * s,
                m + 8 * s,
            )[0]

        expected = entropy(average(lambda p: p)) - average(entropy)
        # Koksma's inequality: the entropy rises to log 2 and falls again over 512 even points.
        assert abs(found[n] - expected) < 2.0 * np.log(2.0) / 512


def test_what_is_wrong_is_said():
    with pytest.raises(ValueError, match="kind is 'entropy'; it must be one of"):
        acquisition.acquire(Model(), X, "entropy")
    two = Model(mean=np.c_[MEAN, MEAN])
    with pytest.raises(ValueError, match="2 outputs, but an objective has one"):
        acquisition.acquire(two, X, "expected_improvement")
    assert acquisition.acquire(two, X, "variance").shape == (3,)


@pytest.mark.parametrize("best", [[0.1, 0.2], np.nan, "low"])
def test_the_best_known_value_is_one_finite_number(best):
    """NaN would make every candidate NaN, of which `argmax` takes the first."""
    with pytest.raises(ValueError, match=r"best is .*; it must be one finite number"):
        acquisition.acquire(Model(), X, "expected_improvement", best=best)
    assert acquisition.acquire(Model(), X, "expected_improvement", best=tf.constant(0.1)).all()


def test_the_factor_of_a_confidence_bound_is_one_number():
    with pytest.raises(ValueError, match=r"beta is \[1.0, 2.0\]; it must be one real number"):
        acquisition.acquire(Model(), X, "upper_confidence_bound", beta=[1.0, 2.0])

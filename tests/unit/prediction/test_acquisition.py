"""What an observation is worth: against simulation and quadrature."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from scipy import integrate, stats

from gpflow_gvi.prediction import acquisition
from tests.tolerances import assert_close, assert_estimates

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
    with pytest.raises(TypeError, match=r"likelihood is Poisson.* Take 'variance'"):
        acquisition.acquire(Model(likelihoods.Poisson()), X, "bald")
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

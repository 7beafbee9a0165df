"""Laws of predictions: against simulation, quadrature by scipy, and Gaussian closed forms."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import likelihoods
from gpflow.likelihoods.multilatent import MultiLatentTFPConditional
from scipy import integrate, stats

from gpflow_gvi.likelihoods import Ordinal
from gpflow_gvi.likelihoods import law as law_given
from gpflow_gvi.prediction.predictive_law import central_interval, pit, predictive_law
from tests.models import make
from tests.tolerances import ITERATIVE, P_VALUE, STANDARD_ERRORS, assert_close, assert_estimates

tfd = tfp.distributions
X = np.zeros((3, 1))
MEAN = np.array([[0.0], [0.8], [-1.0]])
VARIANCE = np.array([[0.3], [1.0], [0.05]])
LEVELS = (0.025, 0.5, 0.9)
LIKELIHOODS = {
    "student": likelihoods.StudentT(0.4),
    "poisson": likelihoods.Poisson(),
    "beta": likelihoods.Beta(scale=3.0),
    "ordinal": Ordinal(np.array([-1.0, 0.0, 1.0])),
}


def _simulated(name, rng, size=200_000):
    """Draws of y, [S, 3, 1], by NumPy."""
    f = MEAN + np.sqrt(VARIANCE) * rng.normal(size=(size, 3, 1))
    return {
        "student": lambda: f + 0.4 * rng.standard_t(3, size=f.shape),
        "poisson": lambda: rng.poisson(np.exp(f)).astype(float),
        "beta": lambda: rng.beta(3.0 * _probit(f), 3.0 * _probit(-f)),
        "ordinal": lambda: np.digitize(f + rng.normal(size=f.shape), [-1.0, 0.0, 1.0]) * 1.0,
    }[name]()


def _probit(f):
    """GPflow's inverse probit keeps a thousandth away from 0 and 1."""
    return 0.001 + 0.998 * stats.norm.cdf(f)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_quantiles_are_those_of_simulated_observations(name, rng):
    law = predictive_law(LIKELIHOODS[name], X, MEAN, VARIANCE)
    draws = _simulated(name, rng)
    for level in LEVELS:
        found = law.quantile([[level]]).numpy()
        below, upto = np.mean(draws < found, axis=0), np.mean(draws <= found, axis=0)
        error = STANDARD_ERRORS * np.sqrt(level * (1.0 - level) / len(draws))
        assert np.all(below <= level + error), (level, below)
        assert np.all(upto >= level - error), (level, upto)
        if law.values.whole:
            np.testing.assert_array_equal(found, np.round(found))


@pytest.mark.parametrize("name", ["student", "poisson"])
def test_transformed_observations_are_uniform(name, rng):
    draws = _simulated(name, rng, 500)
    for n in range(3):
        rows = [np.repeat(part[n : n + 1], 500, axis=0) for part in (X, MEAN, VARIANCE)]
        law = predictive_law(LIKELIHOODS[name], *rows)
        values = law.pit(draws[:, n], rng.uniform(size=(500, 1)))
        assert stats.kstest(values[:, 0], "uniform").pvalue > P_VALUE


def test_distribution_function_is_an_integral_over_f():
    law = predictive_law(LIKELIHOODS["student"], X, MEAN, VARIANCE)
    for y in (-3.0, 0.2, 40.0):
        expected = [
            integrate.quad(
                lambda f, y=y, m=m, s=s: stats.t.cdf((y - f) / 0.4, 3) * stats.norm.pdf(f, m, s),
                m - 10 * s,
                m + 10 * s,
                epsabs=1e-12,
            )[0]
            for m, s in zip(MEAN[:, 0], np.sqrt(VARIANCE[:, 0]), strict=True)
        ]
        assert_close(law.cdf(np.full((3, 1), y))[:, 0], expected, ITERATIVE, scale=1.0)


def test_gaussian_noise_has_gaussian_quantiles():
    law = predictive_law(likelihoods.Gaussian(0.2), X, MEAN, VARIANCE)
    expected = stats.norm.ppf(0.9, MEAN, np.sqrt(VARIANCE + 0.2))
    assert_close(law.quantile([[0.9]]), expected)
    uniform = law.pit(MEAN, np.zeros((3, 1)))
    assert_close(uniform, 0.5)


def test_several_latent_functions_of_one_observation(rng):
    mean, variance = np.c_[MEAN, [-1.0, 0.0, 0.5]], np.c_[VARIANCE, [0.1, 0.2, 0.3]]
    law = predictive_law(likelihoods.HeteroskedasticTFPConditional(), X, mean, variance)
    f = mean + np.sqrt(variance) * rng.normal(size=(200_000, 3, 2))
    draws = f[..., :1] + np.exp(f[..., 1:]) * rng.normal(size=(200_000, 3, 1))
    for level in LEVELS:
        found = law.quantile([[level]]).numpy()
        error = np.sqrt(level * (1.0 - level) / len(draws))
        assert_estimates(np.mean(draws <= found, axis=0), level, error)


@pytest.mark.parametrize("kind", [likelihoods.Softmax, likelihoods.MultiClass])
def test_classes_without_an_order_have_no_distribution_function(kind):
    model = make(3, kind(3))
    with pytest.raises(TypeError, match=rf"likelihood is {kind.__name__}, whose classes have no"):
        pit(model, (X, [0, 1, 2]))


def test_the_ends_of_all_that_can_be():
    for name, least, most in (("poisson", 0.0, np.inf), ("beta", 0.0, 1.0), ("ordinal", 0.0, 3.0)):
        law = predictive_law(LIKELIHOODS[name], X, MEAN, VARIANCE)
        np.testing.assert_array_equal(law.quantile([[0.0]]), np.full((3, 1), least))
        np.testing.assert_array_equal(law.quantile([[1.0]]), np.full((3, 1), most))
        np.testing.assert_array_equal(law.cdf(np.full((3, 1), least - 1.0)), np.zeros((3, 1)))


def test_large_counts_and_float32():
    law = predictive_law(likelihoods.Poisson(), X, MEAN + 12.0, 1e-9 + 0.0 * VARIANCE)
    expected = stats.poisson.ppf(0.9, np.exp(MEAN + 12.0))
    assert_close(law.quantile([[0.9]]), expected, ITERATIVE)
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        law = predictive_law(
            likelihoods.StudentT(0.4), *(part.astype(np.float32) for part in (X, MEAN, VARIANCE))
        )
        found = law.quantile([[0.9]])
    assert found.dtype == tf.float32
    law = predictive_law(likelihoods.StudentT(0.4), X, MEAN, VARIANCE)
    assert_close(found, law.quantile([[0.9]]))


def test_under_switched_likelihoods_there_are_the_intervals_of_each():
    class Model:
        likelihood = likelihoods.SwitchedLikelihood(
            [likelihoods.Gaussian(0.1), likelihoods.Poisson()]
        )

        def predict_f(self, X):
            return tf.constant(MEAN), tf.constant(VARIANCE)

    lower, upper = central_interval(Model(), X, 0.8)
    assert lower.shape == upper.shape == (3, 2)
    noisy = np.sqrt(VARIANCE + 0.1)
    assert_close(upper[:, :1], stats.norm.ppf(0.9, MEAN, noisy))
    counts = predictive_law(likelihoods.Poisson(), X, MEAN, VARIANCE).quantile([[0.9]])
    np.testing.assert_array_equal(upper[:, 1:], counts)


def _own(law):
    """An object of a class of likelihoods whose law alone is registered."""

    class Own(likelihoods.ScalarLikelihood):
        def _scalar_log_prob(self, X, F, Y):
            return law(F).log_prob(Y)

        def _conditional_mean(self, X, F):
            return law(F).mean()

        def _conditional_variance(self, X, F):
            return law(F).variance()

    law_given.register(Own, lambda _, X, F: law(F))
    return Own()


def test_positive_numbers_of_a_likelihood_of_ones_own():
    of_y = _own(lambda F: tfd.LogNormal(F, tf.cast(0.5, F.dtype)))
    law = predictive_law(of_y, X, MEAN, VARIANCE)
    expected = stats.lognorm(np.sqrt(VARIANCE + 0.25), scale=np.exp(MEAN))
    for level in LEVELS:
        assert_close(law.quantile([[level]]), expected.ppf(level), ITERATIVE)
    np.testing.assert_array_equal(law.cdf(-np.ones((3, 1))), np.zeros((3, 1)))


def _with_zeros(F):
    """Counts and, in three of ten cases, zero."""
    one = tf.ones_like(F)
    kinds = tfd.Categorical(probs=tf.stack([0.3 * one, 0.7 * one], axis=-1))
    return tfd.Mixture(kinds, [tfd.Deterministic(0.0 * F), tfd.Poisson(tf.exp(F))])


@pytest.mark.parametrize(
    ("law", "simulated"),
    [
        (_with_zeros, lambda rng, f: rng.poisson(np.exp(f)) * (rng.uniform(size=f.shape) > 0.3)),
        (
            lambda F: tfd.NegativeBinomial(tf.cast(3.0, F.dtype), logits=F),
            lambda rng, f: rng.negative_binomial(3, 1.0 / (1.0 + np.exp(f))),
        ),
    ],
)
def test_counts_of_a_likelihood_of_ones_own(law, simulated, rng):
    found = predictive_law(_own(law), X, MEAN, VARIANCE)
    draws = simulated(rng, MEAN + np.sqrt(VARIANCE) * rng.normal(size=(200_000, 3, 1)))
    for level in LEVELS:
        quantile = found.quantile([[level]]).numpy()
        np.testing.assert_array_equal(quantile, np.round(quantile))
        error = STANDARD_ERRORS * np.sqrt(level * (1.0 - level) / len(draws))
        assert np.all(np.mean(draws < quantile, axis=0) <= level + error)
        assert np.all(np.mean(draws <= quantile, axis=0) >= level - error)
    transformed = found.pit(draws[0].astype(float), np.zeros((3, 1)))
    assert_close(transformed, found.cdf(draws[0] - 1.0))


def test_counts_of_several_latent_functions():
    of_y = MultiLatentTFPConditional(
        2, lambda F: tfd.NegativeBinomial(tf.exp(F[..., :1]), logits=F[..., 1:])
    )
    mean = np.c_[MEAN, MEAN]
    found = predictive_law(of_y, X, mean, np.full_like(mean, 1e-12)).quantile([[0.9]])
    expected = stats.nbinom.ppf(0.9, np.exp(MEAN), 1.0 / (1.0 + np.exp(MEAN)))
    np.testing.assert_array_equal(found, expected)

"""Laws of observations, and levels with finite probabilities: against scipy and GPflow."""

from __future__ import annotations

import gpflow
import mpmath
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from scipy import stats

from gpflow_gvi.likelihoods import (
    HeavyTailed,
    Ordinal,
    degrees_of_freedom,
    draws_samples,
    has_constant_noise,
    is_gaussian,
    law,
    num_classes,
    observed_columns,
    usable,
)
from tests.tolerances import ITERATIVE, assert_close

EDGES = np.array([-1.0, 0.5, 2.0])
F = np.linspace(-3.0, 4.0, 8)[:, None]
X = np.zeros((8, 1))


def test_probabilities_of_levels_are_differences_of_a_distribution_function():
    likelihood = Ordinal(EDGES)
    likelihood.sigma.assign(0.7)
    ends = np.concatenate([[-np.inf], EDGES, [np.inf]])
    for level in range(4):
        Y = np.full((8, 1), float(level))
        expected = np.diff(stats.norm.cdf((ends[level : level + 2] - F) / 0.7))[:, 0]
        assert_close(np.exp(likelihood.log_prob(X, F, Y)), expected)
    probabilities = law(likelihood, X, tf.constant(F)).probs_parameter()[:, 0]
    assert_close(np.sum(probabilities, axis=1), 1.0)
    mean = probabilities.numpy() @ np.arange(4.0)
    assert_close(likelihood.conditional_mean(X, F)[:, 0], mean)


def test_far_away_levels_have_the_logarithm_of_their_probability_and_a_slope():
    likelihood = Ordinal(EDGES)
    far = tf.constant([[-30.0], [30.0], [-30.0], [30.0]], tf.float64)
    Y = np.array([[2.0], [1.0], [3.0], [0.0]])
    with tf.GradientTape() as tape:
        tape.watch(far)
        logs = likelihood.log_prob(X[:4], far, Y)
    # That of the nearer end of a level, beside which the other one's is nothing.
    distance, sign = np.array([30.5, 29.5, 32.0, 31.0]), np.array([1.0, -1.0, 1.0, -1.0])
    expected = stats.norm.logsf(distance)
    assert_close(logs, expected)
    slope = sign * np.exp(stats.norm.logpdf(distance) - expected)
    assert_close(tape.gradient(logs, far)[:, 0], slope)


def exact_level(level, f, sigma):
    """log p(y | f) and its derivatives by f and by σ, with hundreds of digits."""
    with mpmath.workdps(60):
        f, sigma = mpmath.mpf(float(f)), mpmath.mpf(float(sigma))
        ends = [-mpmath.inf, *(mpmath.mpf(float(edge)) for edge in EDGES), mpmath.inf]
        ends = [(end - f) / sigma for end in ends[int(level) : int(level) + 2]]
        if ends[0] > 0:  # the complements, which are small
            probability = (mpmath.erfc(ends[0] / mpmath.sqrt(2)) - right_tail(ends[1])) / 2
        else:
            probability = (right_tail(-ends[1]) - right_tail(-ends[0])) / 2
        slopes = [mpmath.npdf(end) if mpmath.isfinite(end) else mpmath.mpf(0) for end in ends]
        moments = [s * end if s else mpmath.mpf(0) for s, end in zip(slopes, ends, strict=True)]
        by_f = (slopes[0] - slopes[1]) / sigma / probability
        by_sigma = (moments[0] - moments[1]) / sigma / probability
        return [float(mpmath.log(probability)), float(by_f), float(by_sigma)]


def right_tail(x):
    if x == mpmath.inf:
        return mpmath.mpf(0)
    return mpmath.mpf(2) if x == -mpmath.inf else mpmath.erfc(x / mpmath.sqrt(2))


@pytest.mark.slow
@pytest.mark.parametrize("precision", [np.float64, np.float32])
@pytest.mark.parametrize("sigma", [0.0625, 1.0, 8.0])
def test_levels_are_right_at_any_distance_and_so_are_their_slopes(precision, sigma):
    """Also about 40 σ, and so far that no probability is a number other than 0."""
    distances = np.array([0.0, 0.3, 1.0, 5.0, 14.0, 38.0, 39.9, 40.0, 40.1, 52.0, 1e3, 1e5])
    f = (0.5 + sigma * np.concatenate([-distances[:0:-1], distances])).astype(precision)
    f, level = np.tile(f, 4)[:, None], np.repeat(np.arange(4.0), len(f))[:, None]
    with gpflow.config.as_context(gpflow.config.Config(float=precision)):
        likelihood = Ordinal(EDGES.astype(precision))
        likelihood.sigma.assign(sigma)
        width = likelihood.sigma.unconstrained_variable

        @tf.function(autograph=False)
        def with_slopes(F, Y):
            with tf.GradientTape() as tape:
                tape.watch(F)
                logs = likelihood.log_prob(tf.zeros_like(F), F, Y)
            return logs, *tape.gradient(logs, [F, width])

        logs, by_f, by_width = with_slopes(tf.constant(f), tf.constant(level, precision))
    expected = np.array(
        [exact_level(*each, sigma) for each in zip(level[:, 0], f[:, 0], strict=True)]
    )
    of_logs, of_f = (np.maximum(1.0, np.abs(expected[:, i])) for i in (0, 1))
    assert_close(logs, expected[:, 0], scale=of_logs)
    assert_close(by_f[:, 0], expected[:, 1], scale=of_f)
    # σ = softplus(its variable): the slope of one by the other is 1 - e^-σ.
    total = np.sum(expected[:, 2]) * -np.expm1(-sigma)
    assert_close(by_width, total, scale=np.sum(np.abs(expected[:, 2])))


def test_variances_of_levels_are_not_negative():
    likelihood = Ordinal(np.arange(40.0))
    f = np.linspace(-3.0, 60.0, 500)[:, None]
    variance = likelihood.conditional_variance(np.zeros_like(f), f)
    assert np.all(variance >= 0.0)
    assert_close(variance[100:300], np.full((200, 1), 1.0 + 1.0 / 12.0), ITERATIVE)


def test_ordinal_of_gpflow_is_replaced_with_its_width():
    given = likelihoods.Ordinal(EDGES)
    given.sigma.assign(0.3)
    gpflow.set_trainable(given.sigma, False)
    replaced = usable(given)
    assert isinstance(replaced, Ordinal)
    assert_close(float(replaced.sigma.numpy()), 0.3)
    assert not replaced.sigma.trainable
    assert given.sigma is not replaced.sigma
    assert usable(replaced) is replaced


LAWS = {
    "gaussian": (likelihoods.Gaussian(0.3), [-1.0, 0.4]),
    "student": (likelihoods.StudentT(0.5, df=4.0), [-1.0, 3.0]),
    "poisson": (likelihoods.Poisson(binsize=0.5), [0.0, 3.0]),
    "exponential": (likelihoods.Exponential(), [0.1, 3.0]),
    "gamma": (likelihoods.Gamma(shape=2.0), [0.1, 3.0]),
    "beta": (likelihoods.Beta(scale=3.0), [0.1, 0.8]),
    "ordinal": (Ordinal(EDGES), [0.0, 3.0]),
    "varying": (
        likelihoods.Gaussian(scale=gpflow.functions.Linear(0.1 * np.ones((1, 1)), 0.5)),
        [0.1, 3.0],
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_have_the_density_and_the_moments_of_the_likelihood(name):
    likelihood, values = LAWS[name]
    X, f = np.linspace(0.0, 1.0, 8)[:, None], tf.constant(0.3 * F)
    found = law(likelihood, X, f)
    for value in values:
        Y = tf.fill(f.shape, tf.constant(value, tf.float64))
        expected = likelihood.log_prob(X, f, Y)
        assert_close(found.log_prob(Y)[:, 0], expected)
    if name != "ordinal":  # TFP has no moments of categories
        assert_close(found.mean(), likelihood.conditional_mean(X, f))
        variance = likelihood.conditional_variance(X, f)
        assert_close(found.variance() + 0.0 * f, variance)


def test_laws_of_other_likelihoods_can_be_registered():
    class Shifted(likelihoods.Gaussian):
        pass

    assert law(Shifted(), X, tf.constant(F)).batch_shape == (8, 1)
    switched = likelihoods.SwitchedLikelihood([likelihoods.Gaussian()])
    with pytest.raises(TypeError, match=r"Switched.*; the law .* is known for .*law\.register"):
        law(switched, X, F)


CLASSES = {
    "bernoulli": likelihoods.Bernoulli(),
    "softmax": likelihoods.Softmax(3),
    "multi_class": likelihoods.MultiClass(3),
}


@pytest.mark.parametrize("name", CLASSES)
def test_laws_of_labels_have_their_probabilities(name, rng):
    likelihood = CLASSES[name]
    J = 1 if name == "bernoulli" else 3
    X, f = np.zeros((8, 1)), rng.normal(size=(5, 8, J))
    found = law(likelihood, np.broadcast_to(X, (5, 8, 1)), f)
    assert found.batch_shape == (5, 8, 1)
    for label in range(2 if name == "bernoulli" else 3):
        Y = np.full((8, 1), label, np.int64 if name == "softmax" else float)
        expected = np.stack([likelihood.log_prob(X, part, Y) for part in f])
        logs = found.log_prob(np.full((5, 8, 1), float(label)))[..., 0]
        assert_close(logs, expected)


SWITCHED = likelihoods.SwitchedLikelihood([likelihoods.Gaussian(), likelihoods.StudentT()])
OF_TYPES = {
    None: (True, True, None),
    likelihoods.Gaussian(0.1): (True, True, None),
    likelihoods.Gaussian(gpflow.functions.Linear()): (True, False, None),
    HeavyTailed(0.1, [5.0]): (True, True, None),
    likelihoods.StudentT(): (False, False, None),
    likelihoods.Bernoulli(): (False, False, 2),
    likelihoods.MultiClass(4): (False, False, 4),
    likelihoods.Softmax(3): (False, False, 3),
    SWITCHED: (False, False, None),
}


@pytest.mark.parametrize("likelihood", OF_TYPES, ids=lambda each: type(each).__name__)
def test_what_the_type_of_a_likelihood_says(likelihood):
    found = is_gaussian(likelihood), has_constant_noise(likelihood), num_classes(likelihood)
    assert found == OF_TYPES[likelihood]
    if likelihood is not None:
        assert draws_samples(likelihood) == isinstance(likelihood, likelihoods.Softmax)
        assert (degrees_of_freedom(likelihood) is None) == (type(likelihood) is not HeavyTailed)


def test_columns_of_y_are_those_of_a_scalar_likelihood():
    assert observed_columns(likelihoods.StudentT(), 3) == 3
    assert observed_columns(SWITCHED, 3) is None  # one more, which says which likelihood
    assert observed_columns(likelihoods.MultiClass(3), 3) is None

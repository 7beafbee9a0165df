"""What learning needs of a likelihood, and GPflow's do not have; `Ordinal` and `HeavyTailed`.

`law` is that of y given f, a distribution of TensorFlow Probability, with its mean, variance,
density and, for quantiles, its distribution function. `register` adds another class to a
`functools.singledispatch`, which most functions of the type of a likelihood are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import inherit_check_shapes
from gpflow import Parameter
from gpflow.base import TensorType
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Likelihood,
    MonteCarloLikelihood,
    MultiClass,
    Poisson,
    ScalarLikelihood,
    Softmax,
    StudentT,
    SwitchedLikelihood,
)
from gpflow.likelihoods.multilatent import MultiLatentTFPConditional
from gpflow.utilities import positive, to_default_int

from ._core import checks
from ._core.domains import domain as domain
from ._core.domains import has_scale as has_scale
from ._core.graphs import deepcopy
from ._core.labels import are_labels as are_labels
from ._core.labels import encoded as encoded
from ._core.labels import likelihood_of as likelihood_of
from ._core.labels import num_classes as num_classes
from ._core.labels import num_latents as num_latents
from ._core.state import in_dtype

tfd = tfp.distributions


class Ordinal(gpflow.likelihoods.Ordinal):
    """GPflow's `Ordinal`, with probabilities that are finite in the first and the last level.

        p(y | f) = Φ((a_y - f) / σ) - Φ((a_{y-1} - f) / σ),    a_{-1} = -∞,  a_{K-1} = ∞

    Chu and Ghahramani (2005). GPflow evaluates Φ at infinity, where TensorFlow's error function of
    several numbers is NaN, and bounds the probabilities from below. Here logarithms of
    probabilities, and their derivatives, are exact however far away a level is.

    :param bin_edges: a_0 < ... < a_{K-2}, the values of f where the level changes.
    """

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        level = to_default_int(Y)
        last = self.num_bins - 1
        edges = in_dtype(self.bin_edges, F.dtype)
        upper = tf.gather(edges, tf.minimum(level, last - 1))
        lower = tf.gather(edges, tf.maximum(level - 1, 0))
        below, above = (lower - F) / self.sigma, (upper - F) / self.sigma
        # The outer levels have one end. The others' ends must differ where they are not taken.
        inner = (level > 0) & (level < last)
        width = tf.where(inner, upper - lower, tf.ones([], F.dtype)) / self.sigma
        between = _log_probability_between(tf.where(inner, below, above - width), above, width)
        outer = _log_cdf(tf.where(level == 0, above, -below))
        return tf.where(inner, between, outer)

    def _log_phi(self, F: TensorType) -> tf.Tensor:
        """Return the logarithms of what `_make_phi` returns."""
        column = tf.reshape(F, [-1, 1])
        levels = tf.range(self.num_bins, dtype=column.dtype)[None, :] + tf.zeros_like(column)
        return self._scalar_log_prob(column, column + tf.zeros_like(levels), levels)

    @inherit_check_shapes
    def _make_phi(self, F: TensorType) -> tf.Tensor:
        return tf.exp(self._log_phi(F))

    @inherit_check_shapes
    def _conditional_variance(self, X: TensorType, F: TensorType) -> tf.Tensor:
        # Squares of differences, as differences of squares can be less than zero.
        levels = tf.range(self.num_bins, dtype=F.dtype)
        differences = levels - tf.reshape(self._conditional_mean(X, F), [-1, 1])
        variance = tf.reduce_sum(self._make_phi(F) * tf.square(differences), axis=1)
        return tf.reshape(variance, tf.shape(F))


class HeavyTailed(Gaussian):
    """Gaussian noise, and predictions that are farther off at times than a Gaussian's.

    In each row the variance of f and that of the noise are multiplied by an unknown factor w:

        y ~ N(m, w (r + σ²)),    1/w ~ Gamma(ν/2, (ν - 2)/2),  E w = 1

    for f ~ GP(m, r), so that predictions are Student's t with ν degrees of freedom, the mean m and
    the variance r + σ². As of a Student-t process (Shah, Wilson and Ghahramani 2014), but with a
    factor for each row instead of one for all.

    :param variance: σ², a number or a function, as of GPflow's `Gaussian`.
    :param df: ν > 2, a number or one for each output, [J].
    """

    def __init__(self, variance: Any, df: TensorType) -> None:
        super().__init__(variance, variance_lower_bound=0.0)
        self.df = Parameter(df, transform=positive(lower=2.0), trainable=False)

    def at(self, mean: TensorType, variance: TensorType) -> Any:
        """Return Student's t with this mean and variance, each [..., N, J]."""
        df = in_dtype(self.df, mean.dtype)
        return tfd.StudentT(df, mean, tf.sqrt(variance * (df - 2.0) / df))

    def stretched(self, Y: TensorType, mean: TensorType, seed: Any) -> tf.Tensor:
        """Return samples m + √w (y - m) of samples under Gaussian noise: [S, N, J]."""
        df = tf.broadcast_to(in_dtype(self.df, Y.dtype), tf.shape(Y)[-1:])
        precision = tfd.Gamma(0.5 * df, 0.5 * df - 1.0).sample(tf.shape(Y)[:-1], seed=seed)
        return mean + (Y - mean) / tf.sqrt(precision)

    @inherit_check_shapes
    def _scalar_log_prob(self, X: TensorType, F: TensorType, Y: TensorType) -> tf.Tensor:
        return self.at(F, self._conditional_variance(X, F)).log_prob(Y)

    @inherit_check_shapes
    def _predict_log_density(
        self, X: TensorType, Fmu: TensorType, Fvar: TensorType, Y: TensorType
    ) -> tf.Tensor:
        law = self.at(Fmu, Fvar + self._conditional_variance(X, Fmu))
        return tf.reduce_sum(law.log_prob(Y), axis=-1)

    # That of log p(y | f), by quadrature: a Gaussian's closed form is another one.
    _variational_expectations = ScalarLikelihood._variational_expectations


def _log_cdf(x: tf.Tensor) -> tf.Tensor:
    zero, one = tf.zeros([], x.dtype), tf.ones([], x.dtype)
    return tfd.Normal(zero, one).log_cdf(x)


def _log_probability_between(lower: tf.Tensor, upper: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Return log (Φ(upper) - Φ(lower)), upper - lower = width > 0.

    On one side of 0, taken as the left one, it is log Φ(upper) + log (1 - e^-d) with
    d = log Φ(upper) - log Φ(lower). As Φ(-x) = ½ e^(-x²/2) erfcx(x/√2), the large squares of d are
    subtracted in closed form.
    """
    around = (lower < 0.0) & (upper > 0.0)
    lower, upper = tf.where(lower >= 0.0, -upper, lower), tf.where(lower >= 0.0, -lower, upper)
    # In a place that is not taken a function must not overflow, as its derivative is taken, too.
    one = tf.ones([], upper.dtype)
    left = tf.where(around, -one, upper), tf.where(around, -one - width, lower)
    root = np.sqrt(2.0)
    more, less = (tfp.math.logerfcx(-end / root) for end in left)
    difference = more - less - 0.5 * width * (left[0] + left[1])
    aside = _log_cdf(left[0]) + tfp.math.log1mexp(difference)
    ends = tf.where(around, upper, width), tf.where(around, -lower, width)
    both = tf.math.log(0.5 * (tf.math.erf(ends[0] / root) + tf.math.erf(ends[1] / root)))
    return tf.where(around, both, aside)


def usable(likelihood: Likelihood) -> Likelihood:
    """Return a likelihood that can be fitted: itself, but for GPflow's `Ordinal`, which is NaN."""
    if type(likelihood) is not gpflow.likelihoods.Ordinal:
        return likelihood
    ordinal = Ordinal(likelihood.bin_edges)
    ordinal.sigma = deepcopy(likelihood.sigma)
    return ordinal


def require_usable(likelihood: Likelihood) -> None:
    """Raise unless an argument is a likelihood that can be fitted as it is."""
    checks.instance("likelihood", likelihood, Likelihood)
    if type(likelihood) is gpflow.likelihoods.Ordinal:
        raise TypeError(
            "likelihood is GPflow's Ordinal, which is NaN in the first and the last level. Pass "
            "gpflow_gvi.likelihoods.Ordinal(bin_edges), which is not."
        )


@functools.singledispatch
def law(likelihood: Likelihood, X: TensorType, F: TensorType) -> Any:
    """Return p(y | f) of each output, a distribution of the batch shape [..., N, P].

    :param likelihood: p(y | f); `law.register` adds another class.
    :param X: the inputs, [..., N, D].
    :param F: the latent functions, [..., N, J].
    """
    known = sorted(kind.__name__ for kind in law.registry if kind is not object)
    raise TypeError(
        f"likelihood is {type(likelihood).__name__}; the law of its observations is known for "
        f"{known}. Register it, as a distribution of TensorFlow Probability, with "
        "gpflow_gvi.likelihoods.law.register."
    )


@law.register
def _(likelihood: Gaussian, X: TensorType, F: TensorType) -> Any:
    return tfd.Normal(F, tf.sqrt(likelihood.conditional_variance(X, F)))


@law.register
def _(likelihood: HeavyTailed, X: TensorType, F: TensorType) -> Any:
    return likelihood.at(F, likelihood.conditional_variance(X, F))


@law.register
def _(likelihood: StudentT, X: TensorType, F: TensorType) -> Any:
    return tfd.StudentT(in_dtype(likelihood.df, F.dtype), F, likelihood._scale(X))


@law.register
def _(likelihood: Poisson, X: TensorType, F: TensorType) -> Any:
    return tfd.Poisson(likelihood.conditional_mean(X, F))


@law.register
def _(likelihood: Exponential, X: TensorType, F: TensorType) -> Any:
    return tfd.Exponential(1.0 / likelihood.conditional_mean(X, F))


@law.register
def _(likelihood: Gamma, X: TensorType, F: TensorType) -> Any:
    return tfd.Gamma(likelihood._shape(X), 1.0 / likelihood.invlink(F))


@law.register
def _(likelihood: Beta, X: TensorType, F: TensorType) -> Any:
    mean, scale = likelihood.invlink(F), likelihood._scale(X)
    return tfd.Beta(scale * mean, scale * (1.0 - mean))


@law.register
def _(likelihood: gpflow.likelihoods.Ordinal, X: TensorType, F: TensorType) -> Any:
    logs = usable(likelihood)._log_phi(F)  # [... N P, K]
    shape = tf.concat([tf.shape(F), [likelihood.num_bins]], axis=0)
    return tfd.Categorical(logits=tf.reshape(logs, shape), dtype=F.dtype)


@law.register
def _(likelihood: Bernoulli, X: TensorType, F: TensorType) -> Any:
    return tfd.Bernoulli(probs=likelihood.conditional_mean(X, F), dtype=F.dtype)


@law.register
def _(likelihood: Softmax, X: TensorType, F: TensorType) -> Any:
    return tfd.Categorical(F[..., None, :], dtype=F.dtype)


@law.register
def _(likelihood: MultiClass, X: TensorType, F: TensorType) -> Any:
    link = likelihood.invlink
    largest = tf.argmax(F, axis=-1)[..., None]
    high, low = (in_dtype(part, F.dtype) for part in (1.0 - link.epsilon, link.eps_k1))
    return tfd.Categorical(
        probs=tf.one_hot(largest, likelihood.num_classes, high, low), dtype=F.dtype
    )


@law.register
def _(likelihood: MultiLatentTFPConditional, X: TensorType, F: TensorType) -> Any:
    return likelihood.conditional_distribution(F)


@functools.singledispatch
def draw(
    likelihood: Likelihood, X: TensorType, F: TensorType, mean: Callable[[], Any], seeds: Any
) -> tf.Tensor:
    """Return samples of y given samples of f: [S, N, P].

    :param likelihood: p(y | f).
    :param X: the inputs, [N, D].
    :param F: samples of f, [S, N, J].
    :param mean: E f, [N, J], if it is needed.
    :param seeds: two seeds.
    """
    return law(likelihood, X, F).sample(seed=seeds[0])


@draw.register
def _(
    likelihood: HeavyTailed, X: TensorType, F: TensorType, mean: Callable[[], Any], seeds: Any
) -> tf.Tensor:
    noise = tf.sqrt(likelihood.conditional_variance(X, F))
    return likelihood.stretched(tfd.Normal(F, noise).sample(seed=seeds[0]), mean(), seeds[1])


def is_gaussian(likelihood: Likelihood | None) -> bool:
    """Return True for Gaussian noise, under which P given observations has closed form.

    It is what None stands for.
    """
    return isinstance(likelihood, Gaussian | None)


def has_constant_noise(likelihood: Likelihood | None) -> bool:
    """Return True for Gaussian noise whose variance is not a function of x."""
    if likelihood is None:
        return True
    return isinstance(likelihood, Gaussian) and isinstance(likelihood.variance, Parameter)


def draws_samples(likelihood: Likelihood) -> bool:
    """Return True if GPflow's expectations over f are averages of samples, others in each call."""
    return isinstance(likelihood, MonteCarloLikelihood)


@functools.singledispatch
def with_moments(likelihood: Gaussian, mean: TensorType, variance: TensorType) -> Any:
    """Return the law of y with this mean and variance under Gaussian noise: [..., N, J]."""
    return tfd.Normal(mean, tf.sqrt(variance))


@with_moments.register
def _(likelihood: HeavyTailed, mean: TensorType, variance: TensorType) -> Any:
    return likelihood.at(mean, variance)


@functools.singledispatch
def degrees_of_freedom(likelihood: Likelihood) -> Parameter | None:
    """Return ν of each output, if predictions under Gaussian noise are Student's t."""
    return None


@degrees_of_freedom.register
def _(likelihood: HeavyTailed) -> Parameter:
    return likelihood.df


@functools.singledispatch
def observed_columns(likelihood: Likelihood, num_outputs: int) -> int | None:
    """Return the number of columns of Y for J latent functions; None if the likelihood knows."""
    return None


@observed_columns.register
def _(likelihood: ScalarLikelihood, num_outputs: int) -> int:
    return num_outputs


@observed_columns.register
def _(likelihood: SwitchedLikelihood, num_outputs: int) -> None:
    return None  # a column says which likelihood a row has

"""Losses of data points under Q: expected losses E_Q[ℓ(f(x), y)], and the predictive log loss."""

from __future__ import annotations

import abc
import functools
import math
from typing import NamedTuple

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.likelihoods import (
    Bernoulli,
    Gaussian,
    Likelihood,
    MultiClass,
    ScalarLikelihood,
    Softmax,
    StudentT,
)

from ._core import checks
from .likelihoods import HeavyTailed, law


class Marginals(NamedTuple):
    """The marginals of Q at data points, and the data: the arguments of a loss."""

    X: tf.Tensor
    """Inputs, [N, D]."""

    f_mean: tf.Tensor
    """Means of Q, [N, J]."""

    f_variance: tf.Tensor
    """Variances of Q, [N, J]."""

    Y: tf.Tensor
    """Observations, [N, P]."""


class Loss(abc.ABC):
    """The loss of each data point, given the marginals of Q there."""

    @check_shapes(
        "X: [N, D...]", "f_mean: [N, J]", "f_variance: [N, J]", "Y: [N, P]", "return: [N]"
    )
    def __call__(
        self,
        likelihood: Likelihood,
        X: TensorType,
        f_mean: TensorType,
        f_variance: TensorType,
        Y: TensorType,
    ) -> tf.Tensor:
        """Return the loss of each data point: [N].

        :param likelihood: p(y | f(x)).
        :param X: inputs, [N, D].
        :param f_mean: the means of Q at X, [N, J].
        :param f_variance: the variances of Q at X, [N, J].
        :param Y: observations, [N, P].
        """
        return self._loss(likelihood, Marginals(X, f_mean, f_variance, Y))

    is_bounded = False
    """Whether no observation costs more than some amount, so that outliers are left to it."""

    def check(self, likelihood: Likelihood) -> None:  # noqa: B027  (most are for all)
        """Raise TypeError if the loss is not known for a likelihood."""

    @abc.abstractmethod
    def _loss(self, likelihood: Likelihood, at: Marginals) -> tf.Tensor:
        """Return the loss of each data point: [N]."""


class LogLoss(Loss):
    """``-E_Q[log p(y|f)]``, the expected negative log likelihood of variational inference."""

    def _loss(self, likelihood: Likelihood, at: Marginals) -> tf.Tensor:
        return -likelihood.variational_expectations(*at)


class PredictiveLogLoss(Loss):
    """``-log E_Q[p(y|f)]``, the negative log predictive density (cross entropy of labels)."""

    def _loss(self, likelihood: Likelihood, at: Marginals) -> tf.Tensor:
        return -likelihood.predict_log_density(*at)


class _OfPowers(Loss):
    """A loss of powers of p(y|f), whose sum or integral over y has to be known."""

    is_bounded = True

    def check(self, likelihood: Likelihood) -> None:
        """Raise TypeError if the loss is not known for a likelihood."""
        functions = {log_expected_power: (None, 0.0), log_power_integral: (None, None, 0.0)}
        for of_likelihood, others in functions.items():
            found, unknown = (of_likelihood.dispatch(each) for each in (type(likelihood), object))
            if found is unknown:
                unknown(likelihood, *others)


class BetaLoss(_OfPowers):
    """E_Q of the β-loss ``-(1/(β-1)) p(y|f)^(β-1) + (1/β) ∫ p(y'|f)^β dy'``.

    Observations of low density have little influence (Basu et al. 1998; Knoblauch, Jewson and
    Damoulas 2022, "An optimization-centric view on Bayes' rule", section 5). As β → 1 its gradient
    becomes that of the log loss, and its value the log loss plus 1 - 1/(β-1); β = 1 is the log
    loss itself.

    :param beta: β > 0; above one for robustness.
    """

    def __init__(self, beta: float = 1.5) -> None:
        checks.positive_number("beta", beta)
        self.beta = float(beta)

    def _loss(self, likelihood: Likelihood, at: Marginals) -> tf.Tensor:
        c = self.beta - 1.0
        if c == 0.0:
            return LogLoss()(likelihood, *at)
        at_y = log_expected_power(likelihood, at, c)
        everywhere = log_expected_power(likelihood, at, 0.0, power=self.beta)
        return -tf.exp(at_y) / c + tf.exp(everywhere) / self.beta


class GammaLoss(_OfPowers):
    """E_Q of the γ-loss ``-(γ/(γ-1)) p(y|f)^(γ-1) (∫ p(y'|f)^γ dy')^(-(γ-1)/γ)``.

    A robust loss like the β-loss, invariant to a factor in p (Fujisawa and Eguchi 2008; Knoblauch,
    Jewson and Damoulas 2022, section 5). As γ → 1 its gradient becomes that of the log loss, and
    its value the log loss minus γ/(γ-1); γ = 1 is the log loss itself.

    :param gamma: γ > 0; above one for robustness.
    """

    def __init__(self, gamma: float = 1.5) -> None:
        checks.positive_number("gamma", gamma)
        self.gamma = float(gamma)

    def _loss(self, likelihood: Likelihood, at: Marginals) -> tf.Tensor:
        c = self.gamma - 1.0
        if c == 0.0:
            return LogLoss()(likelihood, *at)
        value = log_expected_power(likelihood, at, c, power=self.gamma, outer=-c / self.gamma)
        return -tf.exp(value) * self.gamma / c


@functools.singledispatch
def log_expected_power(
    likelihood: Likelihood, at: Marginals, c: float, *, power: float = 0.0, outer: float = 1.0
) -> tf.Tensor:
    """Return ``log E_Q[ p(y|f)^c · (∫ p(y'|f)^power dy')^outer ]``, over all outputs: [N].

    Outputs are independent under Q and under a `ScalarLikelihood`, so the expectation is a product
    over them. It has a closed form for Gaussian noise and `MultiClass`, is computed from samples
    of f for `Softmax`, as its other expectations are, and else by Gauss-Hermite quadrature.
    `power=0` omits the integral.
    """
    raise TypeError(
        f"likelihood is {type(likelihood).__name__}; the β- and γ-loss need one of labels or one "
        "that factorises over outputs (gpflow.likelihoods.ScalarLikelihood). Use LogLoss or "
        "PredictiveLogLoss."
    )


@log_expected_power.register
def _(
    likelihood: Gaussian, at: Marginals, c: float, *, power: float = 0.0, outer: float = 1.0
) -> tf.Tensor:
    X, f_mean, f_variance, Y = at
    s = likelihood.conditional_variance(X, f_mean)  # [N, J]
    integral = outer * log_power_integral(likelihood, X, f_mean, power) if power else 0.0
    value = _log_expected_gaussian_power(Y - f_mean, f_variance, s, c) + integral
    return tf.reduce_sum(value, axis=-1)


@log_expected_power.register(HeavyTailed)
@log_expected_power.register(ScalarLikelihood)
def _(
    likelihood: ScalarLikelihood, at: Marginals, c: float, *, power: float = 0.0, outer: float = 1.0
) -> tf.Tensor:
    X, f_mean, f_variance, Y = at

    def log_integrand(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        value = c * likelihood._scalar_log_prob(X, F, Y) if c else tf.zeros_like(F)
        return value + outer * log_power_integral(likelihood, X, F, power) if power else value

    logs = likelihood.quadrature.logspace(log_integrand, f_mean, f_variance, X=X, Y=Y)  # [N, J]
    return tf.reduce_sum(logs, axis=-1)


@log_expected_power.register
def _(
    likelihood: Softmax, at: Marginals, c: float, *, power: float = 0.0, outer: float = 1.0
) -> tf.Tensor:
    X, f_mean, f_variance, Y = at

    def log_integrand(F: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        value = c * likelihood.log_prob(X, F, Y)[:, None]
        return value + outer * log_power_integral(likelihood, X, F, power) if power else value

    sample = functools.partial(likelihood._mc_quadrature, logspace=True)
    return tf.squeeze(sample(log_integrand, f_mean, f_variance, X=X, Y=Y), axis=-1)


@log_expected_power.register
def _(
    likelihood: MultiClass, at: Marginals, c: float, *, power: float = 0.0, outer: float = 1.0
) -> tf.Tensor:
    """p(y|f) is one of two values, so that E p^c is between their powers where E p is."""
    most, least = _two_probabilities(likelihood)
    share = (tf.exp(likelihood.predict_log_density(*at)) - least) / (most - least)
    value = tf.math.log(least**c + share * (most**c - least**c))
    if not power:
        return value
    return value + outer * log_power_integral(likelihood, at.X, at.f_mean, power)[:, 0]


def _log_expected_gaussian_power(
    residual: tf.Tensor, v: tf.Tensor, s: tf.Tensor, c: float
) -> tf.Tensor:
    """Return log E[N(y; f, s)^c] for f ~ N(m, v) and residual y - m; infinite where it diverges."""
    widened = s + c * v
    finite = widened > 0.0  # always true for c > 0
    widened = tf.where(finite, widened, tf.ones_like(widened))
    value = 0.5 * (
        -c * tf.math.log(2.0 * math.pi * s)
        + tf.math.log(s / widened)
        - c * tf.square(residual) / widened
    )
    return tf.where(finite, value, tf.constant(float("inf"), dtype=value.dtype))


@functools.singledispatch
def log_power_integral(
    likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, power: float
) -> tf.Tensor:
    """Return ``log ∫ p(y|f)^power dy`` for each f, or each row of those of classes.

    `register` adds another likelihood.
    """
    known = sorted(kind.__name__ for kind in log_power_integral.registry if kind is not object)
    raise TypeError(
        f"likelihood is {type(likelihood).__name__}; the integral of a power of its density is "
        f"known for {known}. Register one with gpflow_gvi.losses.log_power_integral.register."
    )


@log_power_integral.register
def _(likelihood: Gaussian, X: tf.Tensor, F: tf.Tensor, power: float) -> tf.Tensor:
    s = likelihood.conditional_variance(X, F)
    return 0.5 * ((1.0 - power) * tf.math.log(2.0 * math.pi * s) - math.log(power))


@log_power_integral.register(HeavyTailed)
@log_power_integral.register(StudentT)
def _(likelihood: Likelihood, X: tf.Tensor, F: tf.Tensor, power: float) -> tf.Tensor:
    of_y = law(likelihood, X, F)
    df, scale = of_y.df, of_y.scale + tf.zeros_like(F)
    peak = (
        tf.math.lgamma(0.5 * (df + 1.0))
        - tf.math.lgamma(0.5 * df)
        - 0.5 * tf.math.log(math.pi * df)
    )
    exponent = 0.5 * (df + 1.0) * power
    width = 0.5 * tf.math.log(math.pi * df)
    tails = tf.math.lgamma(exponent - 0.5) - tf.math.lgamma(exponent)
    tails = tf.where(exponent > 0.5, tails, tf.cast(math.inf, tails.dtype))  # else it diverges
    return power * peak + (1.0 - power) * tf.math.log(scale) + width + tails


@log_power_integral.register
def _(likelihood: Bernoulli, X: tf.Tensor, F: tf.Tensor, power: float) -> tf.Tensor:
    p = likelihood.invlink(F)
    return tf.math.log(p**power + (1.0 - p) ** power)


@log_power_integral.register
def _(likelihood: Softmax, X: tf.Tensor, F: tf.Tensor, power: float) -> tf.Tensor:
    return tf.reduce_logsumexp(power * tf.nn.log_softmax(F), axis=-1, keepdims=True)


@log_power_integral.register
def _(likelihood: MultiClass, X: tf.Tensor, F: tf.Tensor, power: float) -> tf.Tensor:
    most, least = _two_probabilities(likelihood)
    total = most**power + (likelihood.num_classes - 1) * least**power
    return tf.fill([tf.shape(F)[0], 1], tf.math.log(total))


def _two_probabilities(likelihood: MultiClass) -> tuple[tf.Tensor, tf.Tensor]:
    """Return those of the class whose f is the largest, and of each other class."""
    link = likelihood.invlink
    return tf.convert_to_tensor(1.0 - link.epsilon), tf.convert_to_tensor(link.eps_k1)

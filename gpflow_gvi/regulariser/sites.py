"""Observations under any likelihood, as Gaussian observations that stand for them.

Given y ~ p(y | f), the Gaussian process that is nearest to P's posterior (in KL[Q, P(·|Y)], among
those of a Gaussian distribution of f(Z)) is P given pseudo-observations ỹ_n with noise variances
s_n², the sites: one for each row and latent function. With m_n and v_n the mean and the variance of
f(x_n) under it,

    1/s_n² = -2 ∂/∂v_n E log p(y_n | f),    ỹ_n = m_n + s_n² ∂/∂m_n E log p(y_n | f),

the expectation over f ~ N(m_n, v_n). Iterating this is natural-gradient ascent of the evidence
lower bound (Khan and Lin 2017, "Conjugate-computation variational inference"), and the bound with
fixed sites is one of the evidence for other hyper-parameters, too (Adam, Chang, Khan and Solin
2021, "Dual parameterization of sparse variational Gaussian processes"). Under Gaussian noise the
sites are the observations and their noise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.config import default_jitter
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood

from .._core import labels, linalg, outputs
from .._core.errors import NonFiniteLossError
from .._core.samples import normal_points
from ..gaussian_process import GaussianProcess

NUM_SAMPLES = 64
"""The number of points of f for expectations without a rule of quadrature."""

MIN_PRECISION = 1e-6
"""The minimal precision of a site. Where a likelihood is not log-concave, it may have none."""

MAX_UPDATES = 50
"""The maximal number of updates of the sites."""

TOLERANCE = 1e-5
"""Updates end when the bound gains less than this for each row."""


class Sites(NamedTuple):
    """Gaussian observations that stand for a likelihood."""

    Y: TensorType
    """ỹ, [N, J]."""
    variance: TensorType
    """s², [N, J]."""


class Step(NamedTuple):
    """The bound for given sites, and the sites that an update leads to."""

    bound: tf.Tensor
    """Of the log evidence: []."""
    updated: Sites


Expectations = Callable[[TensorType, TensorType, TensorType, TensorType], tf.Tensor]


def step(
    kernel: Kernel,
    Z: TensorType,
    rows: tuple[TensorType, TensorType, TensorType],
    likelihood: Likelihood,
    sites: Sites,
) -> Step:
    """Return the evidence lower bound for given sites, and what they become by one update.

    :param kernel: k of P.
    :param Z: the inducing points, [M, D].
    :param rows: X, [N, D]; Y, observations as the likelihood takes them; and m_P(X), [N, J].
    :param likelihood: p(y | f).
    :param sites: the sites.
    """
    X, Y, m = rows
    f_mean, f_variance, divergence = _posterior(kernel, Z, X, m, sites)
    expectations = expected_log_density(likelihood)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch((f_mean, f_variance))
        expected = tf.reduce_sum(expectations(X, f_mean, f_variance, Y))
    by_mean, by_variance = tape.gradient(expected, (f_mean, f_variance))
    precision = tf.maximum(-2.0 * by_variance, tf.constant(MIN_PRECISION, f_mean.dtype))
    updated = Sites(f_mean + by_mean / precision, 1.0 / precision)
    return Step(expected - divergence, Sites(*map(tf.stop_gradient, updated)))


def damped(before: Sites, after: Sites, rate: float) -> Sites:
    """Return sites on the way from one to another: natural parameters are interpolated."""
    precision = (1.0 - rate) / before.variance + rate / after.variance
    of_mean = (1.0 - rate) * before.Y / before.variance + rate * after.Y / after.variance
    return Sites(of_mean / precision, 1.0 / precision)


def flat_sites(m: tf.Tensor) -> Sites:
    """Return sites that say next to nothing: P's posterior is P.

    :param m: m_P(X), [N, J].
    """
    return Sites(m, tf.fill(tf.shape(m), tf.constant(1.0 / MIN_PRECISION, m.dtype)))


def converged(take_step: Callable[[Sites], Step], sites: Sites) -> tuple[Sites, float]:
    """Return the sites of the greatest bound, and the bound.

    :param take_step: the bound and an update, for given sites.
    :param sites: the sites to start from.
    """
    best, rate = sites, 1.0
    at_best = take_step(best)
    if not np.all(np.isfinite(at_best.bound)) or not np.all(np.isfinite(at_best.updated.Y)):
        raise NonFiniteLossError(
            f"The bound of the log evidence is {float(at_best.bound)} at the start, or its "
            "derivatives are not finite. Check Y and the parameters of the likelihood."
        )
    for _ in range(MAX_UPDATES):
        tried = damped(best, at_best.updated, rate)
        at_tried = take_step(tried)
        gain = float(at_tried.bound - at_best.bound)
        if not gain >= 0.0:  # a full step may be too long; and NaN is no gain
            rate *= 0.5
        else:
            best, at_best, rate = tried, at_tried, min(1.0, 2.0 * rate)
        if abs(gain) < TOLERANCE * len(sites.Y):
            break
    return best, float(at_best.bound)


def sites_of(
    likelihood: Likelihood, prior: GaussianProcess, Z: TensorType, data: RegressionData
) -> Sites:
    """Return the sites of observations.

    :param likelihood: p(y | f).
    :param prior: P before it is conditioned.
    :param Z: the inducing points, [M, D].
    :param data: (X, Y), with Y as the likelihood takes it.
    """
    X, Y = data
    X = tf.convert_to_tensor(X)
    m = tf.broadcast_to(prior.mean_function(X), [len(X), labels.num_latents(likelihood, Y)])
    rows = (X, Y, m)
    return converged(functools.partial(step, prior.kernel, Z, rows, likelihood), flat_sites(m))[0]


def _posterior(
    kernel: Kernel, Z: TensorType, X: TensorType, m: TensorType, sites: Sites
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return mean and variance of f(X), [N, J] each, given the sites; and KL[Q(f(Z)), P(f(Z))].

    In whitened coordinates P(f(Z)) is N(0, I), and Q that of Titsias (2009), eq. 10: with
    A = L⁻¹K_ZX and C Cᵀ = I + A diag(1/s²) Aᵀ it is N(C⁻ᵀ w, (C Cᵀ)⁻¹), w = C⁻¹ A (ỹ - m)/s².
    """
    noise = tf.linalg.matrix_transpose(sites.variance)  # [J, N]
    L = linalg.cholesky(outputs.covariance(kernel, Z), jitter=default_jitter(), name="K_ZZ")
    A = tf.linalg.triangular_solve(L, outputs.covariance(kernel, Z, X))  # [J, M, N]
    scaled = A / tf.sqrt(noise)[:, None, :]
    inner = tf.matmul(scaled, scaled, transpose_b=True)  # [J, M, M]
    C = linalg.cholesky(linalg.add_to_diagonal(inner, tf.ones([], inner.dtype)))
    S = tf.linalg.triangular_solve(C, A)  # [J, M, N]
    residual = tf.linalg.matrix_transpose(sites.Y - m) / noise  # [J, N]
    w = tf.linalg.matvec(S, residual)  # [J, M]
    explained = tf.reduce_sum(tf.square(S), axis=-2)  # [J, N]
    f_mean = m + tf.linalg.matrix_transpose(tf.linalg.matvec(S, w, transpose_a=True))
    prior_variance = tf.linalg.matrix_transpose(outputs.variance(kernel, X))  # [J, N]
    beyond = tf.nn.relu(prior_variance - tf.reduce_sum(tf.square(A), axis=-2))
    tiny = tf.constant(1e-12, explained.dtype)  # derivatives by a variance of zero are infinite
    f_variance = tf.linalg.matrix_transpose(tf.maximum(explained + beyond, tiny))
    mean = tf.linalg.triangular_solve(C, w[..., None], adjoint=True)  # [J, M, 1]
    # tr (C Cᵀ)⁻¹ - M = -tr (C Cᵀ)⁻¹ A diag(1/s²) Aᵀ
    divergence = 0.5 * (tf.reduce_sum(tf.square(mean)) - tf.reduce_sum(explained / noise))
    divergence += tf.reduce_sum(tf.math.log(tf.linalg.diag_part(C)))
    return f_mean, f_variance, divergence


@functools.singledispatch
def expected_log_density(likelihood: Likelihood) -> Expectations:
    """Return E log p(y | f) as a function of X, mean and variance of f, and Y, without noise."""
    return likelihood.variational_expectations


@expected_log_density.register
def _(likelihood: MonteCarloLikelihood) -> Expectations:
    return functools.partial(_by_samples, likelihood)


def _by_samples(
    likelihood: Likelihood,
    X: TensorType,
    f_mean: tf.Tensor,
    f_variance: tf.Tensor,
    Y: TensorType,
) -> tf.Tensor:
    """Return E log p(y | f): [N], by points that are the same for all rows."""
    points = normal_points(NUM_SAMPLES, f_mean.shape[-1], f_mean.dtype.as_numpy_dtype)
    f = f_mean + tf.sqrt(f_variance) * points[:, None, :]  # [S, N, J]
    S, N = len(points), tf.shape(f_mean)[0]
    # Likelihoods take rows: those of one point after those of the other.
    flat = tf.reshape(f, [-1, f_mean.shape[-1]])
    logs = likelihood.log_prob(tf.tile(X, [S, 1]), flat, tf.tile(Y, [S, 1]))
    return tf.reduce_mean(tf.reshape(logs, [S, N]), axis=0)


def left_out(loo: MeanAndVariance, sites: Sites) -> MeanAndVariance:
    """Return mean and variance of f given all other sites, [N, J] each, from those of ỹ."""
    mean, variance = loo
    return mean, variance - sites.variance

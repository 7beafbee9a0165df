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

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance, TensorType
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core import linalg, outputs
from ..errors import NonFiniteLossError
from .conditioning import Posterior
from .expectations import expected_log_density

MIN_PRECISION = 1e-6
"""The minimal precision of a site. Where a likelihood is not log-concave, it may have none."""

MIN_VARIANCE = 1e-12
"""The minimal variance of f: derivatives by a variance of zero are infinite."""

MAX_UPDATES = 50
"""The maximal number of updates of the sites."""

TOLERANCE = 1e-5
"""Updates end when the bound gains less than this for each row."""

NUM_EXTRAPOLATED = 4
"""Not more updates than these are extrapolated."""


class Sites(NamedTuple):
    """Gaussian observations that stand for a likelihood: ỹ and s², [N, J] each."""

    Y: TensorType
    variance: TensorType


class Step(NamedTuple):
    """The bound on the log evidence for given sites, [], and the sites of an update."""

    bound: Any
    updated: Sites


class Rows(NamedTuple):
    """Rows, and what P is at them before it is conditioned."""

    X: TensorType
    """[N, D]."""
    Y: TensorType
    """Observations, as the likelihood takes them: [N, P]."""
    m: tf.Tensor
    """m_P(X): [N, J]."""
    A: tf.Tensor
    """L⁻¹K_ZX with K_ZZ = L Lᵀ: [J, M, N], or [1, M, N] if the outputs share a kernel."""
    beyond: tf.Tensor
    """The variance that f(Z) does not explain, k(x, x) - Σ_m A_mx²: [N, J], or [N, 1]."""


class Covariances(NamedTuple):
    """The covariances of P that the sites need: of J outputs, or one that they share."""

    Kzz: TensorType
    """[J, M, M]."""
    Kzx: TensorType
    """[J, M, N]."""
    k: TensorType
    """The diagonal of K_XX, [N, J]."""


def covariances(kernel: Kernel, Z: TensorType, X: TensorType) -> Covariances:
    """Return the covariances of inducing points, [M, D], and rows, [N, D]."""
    of_points, of_pairs = outputs.covariance(kernel, Z), outputs.covariance(kernel, Z, X)
    return Covariances(of_points, of_pairs, outputs.variance(kernel, X))


def rows_of(at: Covariances, X: TensorType, Y: TensorType, m: TensorType) -> Rows:
    """Return rows with what of P the sites need there."""
    L = linalg.cholesky_of_points(at.Kzz)
    A = tf.linalg.triangular_solve(L, at.Kzx)  # [J, M, N]
    return Rows(X, Y, m, A, tf.nn.relu(at.k - outputs.squares(A)))


def step(blocks: Sequence[Rows], likelihood: Likelihood, sites: Sites) -> Step:
    """Return the evidence lower bound for given sites, and what they become by one update.

    :param blocks: the rows, of which only A is in memory for all of them.
    """
    counts = [tf.shape(block.m)[0] for block in blocks]
    parts = list(map(Sites, *(tf.split(part, counts) for part in sites)))
    posterior = Posterior.given(map(_observed, blocks, parts))
    explained = [_explained(block, posterior) for block in blocks]
    ratios = [
        tf.reduce_sum(v / part.variance) for (_, v), part in zip(explained, parts, strict=True)
    ]
    results = map(functools.partial(_at_rows, likelihood), blocks, explained)
    expected, updated = zip(*results, strict=True)
    joined = Sites(*(tf.concat(part, axis=0) for part in zip(*updated, strict=True)))
    return Step(tf.add_n(expected) - posterior.divergence(tf.add_n(ratios)), joined)


def predictions(rows: Rows, sites: Sites, new: Rows) -> MeanAndVariance:
    """Return mean and variance of f at new rows, given sites of others: [B, J] each."""
    posterior = Posterior.given([_observed(rows, sites)])
    return _marginals(new, _explained(new, posterior))


def _observed(rows: Rows, sites: Sites) -> tuple[tf.Tensor, ...]:
    """Return A, s² and ỹ - m_P."""
    transpose = tf.linalg.matrix_transpose
    return rows.A, transpose(sites.variance), transpose(sites.Y - rows.m)


def _explained(rows: Rows, posterior: Posterior) -> MeanAndVariance:
    """Return mean and variance of what f(Z) explains of f - m_P at rows: [N, J] each."""
    mean, variance = map(tf.linalg.matrix_transpose, posterior.linear_part(rows.A))
    return mean, variance


def _marginals(rows: Rows, explained: MeanAndVariance) -> MeanAndVariance:
    """Return mean and variance of f at rows: [N, J] each."""
    mean, variance = explained
    least = tf.constant(MIN_VARIANCE, variance.dtype)
    return rows.m + mean, tf.maximum(rows.beyond + variance, least)


def _at_rows(
    likelihood: Likelihood, rows: Rows, explained: MeanAndVariance
) -> tuple[tf.Tensor, Sites]:
    """Return Σ_n E log p(y_n | f), [], and the sites by its derivatives, [N, J] each."""
    f_mean, f_variance = _marginals(rows, explained)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch((f_mean, f_variance))
        expectations = expected_log_density(likelihood, rows.X, f_mean, f_variance, rows.Y)
        expected = tf.reduce_sum(expectations)
    by_mean, by_variance = tape.gradient(expected, (f_mean, f_variance))
    precision = tf.maximum(-2.0 * by_variance, tf.constant(MIN_PRECISION, f_mean.dtype))
    updated = Sites(f_mean + by_mean / precision, 1.0 / precision)
    return expected, Sites(*map(tf.stop_gradient, updated))


def _natural(sites: Sites) -> AnyNDArray:
    """Return the natural parameters ỹ / s² and 1 / s²: [2, N, J]."""
    Y, variance = map(np.asarray, sites)
    precision = 1.0 / variance
    return np.stack([Y * precision, precision])


def _proposed(history: Sequence[AnyNDArray], rate: float) -> Sites:
    """Return the sites to try after some, given what an update makes of each.

    Updates g of natural parameters x are extrapolated (Anderson 1965, "Iterative procedures for
    nonlinear integral equations"): with r = g - x,

        g_k - Σ_i γ_i (g_{i+1} - g_i),    γ = argmin |r_k - Σ_i γ_i (r_{i+1} - r_i)|

    Under a softmax, updates alone overshoot by turns, as they take its columns for independent.

    :param history: natural parameters and their updates, [2, 2, N, J] each.
    :param rate: how far to go towards the update of the only sites, where there is one.
    """
    x, g = np.stack(history, axis=1)
    before, after = x[-1], g[-1]
    if len(history) == 1:
        after = (1.0 - rate) * before + rate * after
    else:
        r = g - x
        differences = np.diff(r, axis=0).reshape(len(r) - 1, -1)
        gamma = np.linalg.lstsq(differences.T, r[-1].ravel(), rcond=None)[0]
        after = after - np.tensordot(gamma, np.diff(g, axis=0), axes=1)
    precision = np.maximum(after[1], 0.1 * before[1])  # which extrapolation may take below zero
    return Sites(after[0] / precision, 1.0 / precision)


def first_sites(m: tf.Tensor) -> Sites:
    """Return sites to start from: f is within a standard deviation of one of m = m_P(X).

    Where P's own variance is large, far from its mean likelihoods are as good as constant, so that
    derivatives vanish.
    """
    return Sites(m, tf.ones_like(m))


def converged(take_step: Callable[[Sites], Step], sites: Sites) -> tuple[Sites, float]:
    """Return the sites of the greatest bound, and the bound."""
    best, rate = sites, 1.0
    at_best = take_step(best)
    if not _is_finite(at_best):  # f varies more than the likelihood can be computed for
        best = sites._replace(variance=tf.fill(sites.Y.shape, tf.cast(1e-2, sites.Y.dtype)))
        at_best = take_step(best)
    if not _is_finite(at_best):
        raise NonFiniteLossError(
            f"The bound of the log evidence is {float(at_best.bound)} at the start, or its "
            "derivatives are not finite. Check Y and the parameters of the likelihood."
        )
    history: collections.deque[AnyNDArray] = collections.deque(maxlen=NUM_EXTRAPOLATED)
    history.append(_with_update(best, at_best))
    for _ in range(MAX_UPDATES):
        tried = _proposed(history, rate)
        at_tried = take_step(tried)
        gain = float(at_tried.bound - at_best.bound)
        if not gain >= 0.0:  # a full step may be too long; and NaN is no gain
            rate *= 0.5
            history = collections.deque([history[-1]], NUM_EXTRAPOLATED)
        else:
            best, at_best, rate = tried, at_tried, min(1.0, 2.0 * rate)
            history.append(_with_update(best, at_best))
        if abs(gain) < TOLERANCE * len(sites.Y):
            break
    return best, float(at_best.bound)


def _with_update(sites: Sites, at: Step) -> AnyNDArray:
    """Return the natural parameters of sites, and of their update: [2, 2, N, J]."""
    return np.stack([_natural(sites), _natural(at.updated)])


def _is_finite(at: Step) -> bool:
    return all(np.all(np.isfinite(part)) for part in (at.bound, *at.updated))


def left_out(loo: MeanAndVariance, sites: Sites) -> MeanAndVariance:
    """Return mean and variance of f given all other sites, [N, J] each, from those of ỹ."""
    mean, variance = loo
    return mean, variance - sites.variance

"""Expectations of a likelihood over f ~ N(m, v), by rows, without noise of samples.

They are those of GPflow's likelihoods where these have a rule of quadrature. Those that draw
samples, as `Softmax`, are evaluated at points that are the same for all rows and all calls.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood, MonteCarloLikelihood, Softmax

from .._core.normal_points import normal_points
from .._core.row_blocks import by_blocks

NUM_SAMPLES = 64
"""The number of points of f for the expectations that sites are fitted to."""

NUM_SAMPLES_OF_DENSITIES = 256
"""The number of points of f for predictive densities, which tails matter for."""

MAX_ROWS_AT_ONCE = 2_000
"""The points of more rows are not in memory at once."""


@functools.singledispatch
def expected_log_density(likelihood: Likelihood, *rows: TensorType) -> tf.Tensor:
    """Return E log p(y | f) of each row: [N].

    :param rows: X, mean and variance of f, and Y.
    """
    return likelihood.variational_expectations(*rows)


@expected_log_density.register
def _(likelihood: MonteCarloLikelihood, *rows: TensorType) -> tf.Tensor:
    return tf.reduce_mean(_log_densities(likelihood, NUM_SAMPLES, *rows), axis=0)


class Expectation(NamedTuple):
    """Σ_n E log p(y_n | f) and its derivatives."""

    value: float
    by_mean: AnyNDArray
    """In the mean of f: [N, J]."""
    by_variance: AnyNDArray
    """In the variance of f: [N, J]."""
    by_parameters: Sequence[AnyNDArray]
    """In the variables of the likelihood."""


@functools.singledispatch
def numpy_expectation(likelihood: Likelihood) -> Callable[..., Expectation] | None:
    """Return the function of the rows that has the derivatives without TensorFlow, if known."""
    return None


@numpy_expectation.register
def _(likelihood: Softmax) -> Callable[..., Expectation]:
    return _softmax_expectation


def _softmax_expectation(
    X: TensorType, f_mean: AnyNDArray, f_variance: AnyNDArray, Y: TensorType
) -> Expectation:
    """Return that of log p = f_y - log Σ exp f_j; with f = m + √v ε, p's derivatives are

        ∂/∂m_j = 1[y = j] - E p_j,    ∂/∂v_j = -E p_j ε_j / (2 √v_j),

    as Σ ε = 0 at the points.
    """
    N, J = f_mean.shape
    y, rows = np.asarray(Y)[:, 0].astype(int), np.arange(N)
    points = normal_points(NUM_SAMPLES, J, f_mean.dtype).T  # [J, S]
    deviation = np.sqrt(f_variance.T)  # [J, N]
    f = f_mean.T[:, None] + deviation[:, None] * points[..., None]  # [J, S, N]
    f -= f.max(axis=0)
    of_class = f[y, :, rows].T.copy()  # [S, N]
    p = np.exp(f, out=f)
    total = p.sum(axis=0)  # [S, N]
    p /= total
    S = points.shape[1]
    by_mean = -p.mean(axis=1)  # [J, N]
    by_mean[y, rows] += 1.0
    by_variance = -np.matmul(points[:, None], p)[:, 0] / (2.0 * S * deviation)
    value = float(np.sum(of_class - np.log(total))) / S
    return Expectation(value, by_mean.T, by_variance.T, [])


@functools.singledispatch
def log_predictive_density(likelihood: Likelihood, *rows: TensorType) -> tf.Tensor:
    """Return log E p(y | f) of each row: [N]."""
    return likelihood.predict_log_density(*rows)


@log_predictive_density.register
def _(likelihood: MonteCarloLikelihood, *rows: TensorType) -> tf.Tensor:
    S = NUM_SAMPLES_OF_DENSITIES
    return tf.reduce_logsumexp(_log_densities(likelihood, S, *rows), axis=0) - math.log(S)


def log_predictive_densities(likelihood: Likelihood, *rows: TensorType) -> AnyNDArray:
    """Return `log_predictive_density`, a block of rows after the other: [N]."""
    density = functools.partial(_density_of_block, likelihood)
    return by_blocks(lambda *block: (density(*block),), *rows, size=MAX_ROWS_AT_ONCE)[0]


@functools.singledispatch
def _density_of_block(likelihood: Likelihood, *rows: TensorType) -> TensorType:
    return log_predictive_density(likelihood, *rows)


@_density_of_block.register
def _(likelihood: Softmax, X: TensorType, *rows: TensorType) -> AnyNDArray:
    """Return log E p(y | f) with log p = f_y - log Σ exp f_j, in a third of the time."""
    f_mean, f_variance, Y = map(np.asarray, rows)
    N, J = f_mean.shape
    points = normal_points(NUM_SAMPLES_OF_DENSITIES, J, f_mean.dtype)
    f = f_mean + np.sqrt(f_variance) * points[:, None]  # [S, N, J]
    f -= f.max(axis=-1, keepdims=True)
    of_class = f[:, np.arange(N), Y[:, 0].astype(int)]
    logs = of_class - np.log(np.sum(np.exp(f, out=f), axis=-1))  # [S, N]
    largest = logs.max(axis=0)
    return np.log(np.mean(np.exp(logs - largest), axis=0)) + largest


def _log_densities(likelihood: Likelihood, num_samples: int, *rows: TensorType) -> tf.Tensor:
    """Return log p(y | f) at points of f: [S, N]."""
    X, f_mean, f_variance, Y = map(tf.convert_to_tensor, rows)
    J = f_mean.shape[-1]
    points = normal_points(num_samples, J, f_mean.dtype.as_numpy_dtype)
    f = f_mean + tf.sqrt(f_variance) * points[:, None, :]  # [S, N, J]
    S, N = len(points), tf.shape(f_mean)[0]
    # Likelihoods take rows: those of one point after those of the other.
    tiled = tf.tile(X, [S, 1]), tf.reshape(f, [-1, J]), tf.tile(Y, [S, 1])
    return tf.reshape(likelihood.log_prob(*tiled), [S, N])

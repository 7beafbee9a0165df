"""The probability of y ≤ t, given f, as a mean over f, where y says much of f: a step.

Its place and width are found by finer and finer grids, and points lie around it, the further away
the further from each other,

    z_k = c + w sinh(k τ),

so that the trapezoidal rule sees the step of width w as well as the density of z ~ N(0, 1); that
the integrand is smooth in k makes its error decrease exponentially (Trefethen and Weideman 2014,
"The exponentially convergent trapezoidal rule", section 14).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

MAX_STEP = 0.3
"""The maximal change of the probability between points of an even grid that resolve it."""

NUM_POINTS = 151
"""The number of points around a step."""

REACH = 13.0
"""The largest distance of points from a step, in standard deviations of f."""

NUM_GRIDS = 4
"""The number of grids, each within two or more panels of the one before, that look for a step."""

NUM_PANELS = 32
"""The number of panels of such a grid. What the last of them does not resolve makes no difference
above some 1e-6."""


def sharpened(
    probability: Callable[[tf.Tensor], tf.Tensor], z: tf.Tensor, at_z: tf.Tensor, mean: tf.Tensor
) -> tf.Tensor:
    """Return the expectations over z ~ N(0, 1), anew where an even grid is too wide: [N, P].

    :param probability: that of y ≤ t as a function of z, [S, N, P] to [S, N, P].
    :param z: an even grid, [S].
    :param at_z: the probabilities there, [S, N, P].
    :param mean: the expectations by that grid, [N, P].
    """
    change = at_z[1:] - at_z[:-1]
    slack = 100.0 * np.finfo(change.dtype.as_numpy_dtype).eps
    monotone = tf.reduce_all(change <= slack, axis=0) | tf.reduce_all(change >= -slack, axis=0)
    steep = monotone & (tf.reduce_max(tf.abs(change), axis=0) > MAX_STEP)
    if not tf.reduce_any(steep):
        return mean
    first, last = at_z[0], at_z[-1]
    lower, upper = _middle_half(z[:, None, None] + tf.zeros_like(at_z), at_z, first, last)
    share = tf.cast(np.linspace(0.0, 1.0, NUM_PANELS + 1)[:, None, None], z.dtype)
    for _ in range(NUM_GRIDS):
        grid = lower + share * (upper - lower)
        lower, upper = _middle_half(grid, probability(grid), first, last)
    return tf.where(steep, _around(probability, lower, upper), mean)


def _middle_half(
    grid: tf.Tensor, values: tf.Tensor, first: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return points of a grid [S, N, P] between which lies a half of a change, the middle one."""
    change = tf.where(first == last, tf.ones_like(first), last - first)
    progress = (values - first) / change
    before = tf.where(progress < 0.25, grid, grid[:1])
    behind = tf.where(progress > 0.75, grid, grid[-1:])
    return tf.reduce_max(before, axis=0), tf.reduce_min(behind, axis=0)


def _around(
    probability: Callable[[tf.Tensor], tf.Tensor], lower: tf.Tensor, upper: tf.Tensor
) -> tf.Tensor:
    """Return the expectations by points around a step between two places: [N, P]."""
    least = 100.0 * np.finfo(lower.dtype.as_numpy_dtype).eps
    centre, width = 0.5 * (lower + upper), tf.maximum(upper - lower, least)
    furthest = tf.math.asinh(REACH / width)
    k = tf.cast(np.linspace(-1.0, 1.0, NUM_POINTS)[:, None, None], lower.dtype) * furthest
    z = centre + width * tf.sinh(k)  # [S, N, P]
    weights = tf.exp(-0.5 * tf.square(z)) * tf.cosh(k)
    total = tf.reduce_sum(weights * probability(z), axis=0)
    return total / tf.reduce_sum(weights, axis=0)

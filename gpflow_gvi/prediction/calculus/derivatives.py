"""The slopes ∂f/∂x of a Gaussian process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow import kernels
from gpflow.base import MeanAndVariance, TensorType
from gpflow.kernels import Kernel

from ..._core import checks, outputs
from ..._core.memo import memoised
from ...covariances.conditional import WeightCovariance
from ...covariances.covariance import LowRankUpdate
from ...gaussian_process import GaussianProcess
from ...kernels.feature_map import OnFeatures
from ...mean_functions.predictor import Predictor
from .linearity import assembled, of_combinations, require_exactly, unknown


@check_shapes("X: [N, D]", "return[0]: [N, D, J]", "return[1]: [N, D, J]")
def derivative(process: GaussianProcess, X: TensorType) -> MeanAndVariance:
    """Return mean and variance of the slopes ∂f_j/∂x_d at the rows of X: [N, D, J] each.

    The slopes have mean ∂m/∂x_d and covariance ∂²r(x, x')/∂x_d ∂x'_d (Rasmussen and Williams 2006,
    section 9.4). It needs one forward pass for each column of X, and no [N, N] matrix.
    """
    checks.instance("process", process, GaussianProcess)
    _require_slopes(process)
    at_X = process.at(X)
    N, D = tf.shape(at_X.X)[0], at_X.X.shape[-1]
    directions = [tf.broadcast_to(row, [N, D]) for row in tf.unstack(tf.eye(D, dtype=at_X.X.dtype))]
    with memoised():
        means = [_slope(process.mean_function, at_X.X, V) for V in directions]
        variances = [slope_variance(process.kernel, at_X.X, V) for V in directions]
    shape = [N, D, at_X.num_outputs]
    return (
        tf.broadcast_to(tf.stack(means, axis=1), shape),
        tf.broadcast_to(tf.transpose(tf.stack(variances), [2, 0, 1]), shape),
    )


def _require_slopes(process: GaussianProcess) -> None:
    """Raise for a mean whose slope is not known, as TensorFlow takes it for a constant."""
    mean = process.mean_function
    if any(isinstance(part, Predictor) for part in (mean, *mean.submodules)):
        raise TypeError(
            "process has predictors in its mean, which run in Python and have no derivatives. "
            "Take a process without them, as of learn(data, predictor=None)."
        )


def _slope(function: Callable[[tf.Tensor], Any], X: tf.Tensor, V: tf.Tensor) -> Any:
    """Return the derivative of function(X) as each row of X moves along that row of V."""
    X = tf.identity(X)  # a memoised value of another pass has no derivative in this one
    with tf.autodiff.ForwardAccumulator(X, V) as forward:
        value = function(X)
    return forward.jvp(value, unconnected_gradients=tf.UnconnectedGradients.ZERO)


@functools.singledispatch
def slope_variance(kernel: Kernel, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """Return the variance at x of the derivative along v of f ~ GP(0, kernel): [J or 1, N].

    That is Σ_dd' v_d v_d' ∂²k(x, x')/∂x_d ∂x'_d' at x' = x, for the rows x of X and v of V.
    """
    unknown(kernel, slope_variance)


_CURVATURES = {
    kernels.SquaredExponential: 1.0,
    kernels.RationalQuadratic: 1.0,
    kernels.Matern32: 3.0,
    kernels.Matern52: 5.0 / 3.0,
}
"""Twice the slope of -k/σ² in r², at r = 0, for kernels of the scaled distance r."""


@slope_variance.register(kernels.SquaredExponential)
@slope_variance.register(kernels.RationalQuadratic)
@slope_variance.register(kernels.Matern32)
@slope_variance.register(kernels.Matern52)
def _(kernel: kernels.Stationary, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    require_exactly(_CURVATURES, kernel, slope_variance)
    scaled = kernel.scale(kernel.slice(V, None)[0])
    return _CURVATURES[type(kernel)] * kernel.variance * tf.reduce_sum(scaled**2, axis=-1)[None]


@slope_variance.register
def _(kernel: kernels.Constant, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    return tf.zeros_like(X[None, :, 0])


@slope_variance.register
def _(kernel: kernels.Linear, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    require_exactly([kernels.Linear], kernel, slope_variance)
    return kernel(V, full_cov=False)[None]


@slope_variance.register
def _(kernel: kernels.Product, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """The product rule; k is symmetric, so that ∂k(x, x')/∂x at x' = x is half of ∂k(x, x)/∂x."""
    product, half, slopes = tf.ones([], X.dtype), tf.zeros([], X.dtype), tf.zeros([], X.dtype)
    for part in kernel.kernels:
        k = tf.linalg.matrix_transpose(outputs.variance(part, X))  # [J or 1, N]
        moved = _slope(functools.partial(outputs.variance, part), X, V)
        half2, slopes2 = 0.5 * tf.linalg.matrix_transpose(moved), slope_variance(part, X, V)
        slopes = slopes * k + product * slopes2 + 2.0 * half * half2
        product, half = product * k, half * k + product * half2
    return slopes


@slope_variance.register
def _(kernel: OnFeatures, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """The chain rule: as x moves along v, h(x) moves along h'(x) v."""
    return slope_variance(kernel.base_kernel, kernel.features(X), _slope(kernel.features, X, V))


@slope_variance.register
def _(kernel: LowRankUpdate, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    moved = _slope(kernel.factors, X, V)
    base = sum(slope_variance(part, X, V) for part in kernel.base_kernels)
    return assembled(kernel, base, moved)


@slope_variance.register
def _(kernel: WeightCovariance, X: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(_slope(kernel.observations.whitened, X, V) ** 2, axis=-2)


of_combinations(slope_variance)

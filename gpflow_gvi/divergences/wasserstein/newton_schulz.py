"""Square roots of matrices, and so the fidelity of two covariances, by matrix products alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf
from check_shapes import check_shapes

from ..._core import linalg
from ..._core.notices import notice

CONVERGED = 1e-3
"""A last step that changes the fidelity by more than this fraction gives a notice."""


@check_shapes(
    "K: [broadcast batch..., B, B]",
    "R: [broadcast batch..., B, B]",
    "return: [batch...]",
)
def fidelity_by_products(K: tf.Tensor, R: tf.Tensor, iterations: int | None = None) -> tf.Tensor:
    """Return F = tr (K R)^½ by the coupled Newton-Schulz iteration.

    With Y_0 = K R / s and Z_0 = I,  T = (3 I - Z Y) / 2,  Y ← Y T  and  Z ← T Z  tend to the root
    and to the inverse root (Higham 2008, "Functions of matrices", eq. 6.35). The eigenvalues of K R
    are not negative, and s = (tr (K R)²)^½ is no smaller than any of them, so y grows to √λ. The
    trace therefore grows too, until rounding takes over, which Z has made larger by 1.5 in each
    step: whatever has stopped growing stays as it is.

    :param iterations: the number of steps; as many as the precision bears if not given.
    """
    K, R = tf.convert_to_tensor(K), tf.convert_to_tensor(R)
    iterations = _as_many_as_precision_bears(K.dtype) if iterations is None else iterations

    @tf.custom_gradient
    def fidelity(
        K: tf.Tensor, R: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        """F with its gradient, ∂F/∂R = ½ (K R)^(-½) K and ∂F/∂K = ½ R (K R)^(-½)."""
        root, inverse_root = _roots(tf.matmul(K, R), iterations)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            weight = 0.25 * upstream[..., None, None]
            d_K, d_R = tf.matmul(R, inverse_root), tf.matmul(inverse_root, K)
            d_K, d_R = (D + tf.linalg.matrix_transpose(D) for D in (d_K, d_R))
            return weight * d_K, weight * d_R

        return tf.linalg.trace(root), gradient

    shape = tf.broadcast_dynamic_shape(tf.shape(K), tf.shape(R))
    return fidelity(tf.broadcast_to(K, shape), tf.broadcast_to(R, shape))


@tf.custom_gradient
def trace_of_root(H: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Return tr H^½ of a matrix that need not be symmetric, [..., S, S] to [...].

    Its gradient is ½ H^(-½)ᵀ. Eigenvalues in the left half of the plane have no part in it if they
    are of rounding; a larger one ends the iteration, and smaller ones are missed with it.
    """
    root, inverse_root = _roots(H, _as_many_as_precision_bears(H.dtype))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return 0.5 * upstream[..., None, None] * tf.linalg.matrix_transpose(inverse_root)

    return tf.linalg.trace(root), gradient


def _as_many_as_precision_bears(dtype: tf.DType) -> int:
    """Return a number of steps: rounding grows by 1.5² in each, and to a tenth is far enough."""
    return int(math.log(0.1 / linalg.epsilon(dtype)) / (2.0 * math.log(1.5)))


def _roots(A: tf.Tensor, iterations: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return A^½ and A^(-½), the latter damped where A is singular."""
    squares = tf.reduce_sum(A * tf.linalg.matrix_transpose(A), axis=(-2, -1))  # tr A²
    scale = tf.sqrt(tf.maximum(squares, tf.constant(1e-30, dtype=A.dtype)))[..., None, None]
    identity = tf.eye(tf.shape(A)[-1], dtype=A.dtype)

    def step(
        i: tf.Tensor, Y: tf.Tensor, Z: tf.Tensor, change: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        T = 1.5 * identity - 0.5 * tf.matmul(Z, Y)
        new_Y, new_Z = tf.matmul(Y, T), tf.matmul(T, Z)
        before, after = tf.linalg.trace(Y), tf.linalg.trace(new_Y)
        grown = after - before
        # Also false if it is NaN. What stands still once stands still for good.
        goes_on = ((grown > 0.0) & (grown < before))[..., None, None]
        change = tf.where(goes_on[..., 0, 0], tf.math.divide_no_nan(grown, before), change)
        return i + 1, tf.where(goes_on, new_Y, Y), tf.where(goes_on, new_Z, Z), change

    _, Y, Z, change = tf.while_loop(
        lambda i, *_: i < iterations,
        step,
        (0, A / scale, tf.broadcast_to(identity, tf.shape(A)), tf.ones_like(squares)),
    )
    # A zero product has nothing to converge: its trace is zero from the start.
    change = tf.where(tf.linalg.trace(Y) > 0.0, change, tf.zeros_like(change))
    worst = tf.reduce_max(change)
    notice(
        "the Newton-Schulz iteration had not converged: its last step changed the fidelity by the "
        'part {}. Take more iterations, double precision, or the estimator "exact".',
        tf.where(worst > CONVERGED, worst, tf.zeros_like(worst)),
    )
    return tf.sqrt(scale) * Y, Z / tf.sqrt(scale)

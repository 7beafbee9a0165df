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
    "H: [batch..., S, S]",
    "return: [batch...]",
)
def trace_of_root(H: tf.Tensor) -> tf.Tensor:
    """Return tr H^½ by the coupled Newton-Schulz iteration; of H = K R it is the fidelity F.

    With Y_0 = H / s and Z_0 = I,  T = (3 I - Z Y) / 2,  Y ← Y T  and  Z ← T Z  tend to the root
    and to the inverse root (Higham 2008, "Functions of matrices", eq. 6.35). The eigenvalues of K R
    are not negative, and s = (tr H²)^½ is no smaller than any of them, so y grows to √λ. The
    trace therefore grows too, until rounding takes over, which Z has made larger by 1.5 in each
    step: whatever has stopped growing stays as it is.

    Eigenvalues of another H in the left half of the plane have no part in it if they are of
    rounding; a larger one ends the iteration, and smaller ones are missed with it.
    """
    H = tf.convert_to_tensor(H)
    # Rounding grows by 1.5² in each step, and to a tenth is far enough.
    bearable = int(math.log(0.1 / linalg.epsilon(H.dtype)) / (2.0 * math.log(1.5)))

    @tf.custom_gradient
    def trace(H: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        """The trace with its gradient, ½ H^(-½)ᵀ."""
        root, inverse_root = _roots(H, bearable)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return 0.5 * upstream[..., None, None] * tf.linalg.matrix_transpose(inverse_root)

        return tf.linalg.trace(root), gradient

    return trace(H)


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
        'part {}. Take double precision, or the estimator "exact".',
        tf.where(worst > CONVERGED, worst, tf.zeros_like(worst)),
    )
    return tf.sqrt(scale) * Y, Z / tf.sqrt(scale)

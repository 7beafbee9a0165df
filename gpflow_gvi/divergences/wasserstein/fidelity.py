"""The fidelity of two covariances, by eigenvalues or by matrix products alone, and its gradient.

W₂² between Gaussians of equal means is tr K + tr R - 2 F(K, R) (Dowson and Landau 1982).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..._core import linalg
from ..._core.notices import notice

CONVERGED = 1e-3
"""A last Newton-Schulz step that changes the fidelity by more than this fraction gives a notice."""


@check_shapes(
    "K: [broadcast batch..., B, B]",
    "R: [broadcast batch..., B, B]",
    "return: [batch...]",
)
def fidelity(K: tf.Tensor, R: tf.Tensor) -> tf.Tensor:
    """Return F = tr( (K^½ R K^½)^½ ) = Σ_i √λ_i(Aᵀ R A), where K = A Aᵀ.

    Either matrix may be rank-deficient. A K that several R share is factorised once.
    """
    K, R = tf.convert_to_tensor(K), tf.convert_to_tensor(R)
    A = linalg.root(tf.stop_gradient(K))
    shape = tf.broadcast_dynamic_shape(tf.shape(K), tf.shape(R))
    return _fidelity(tf.broadcast_to(K, shape), tf.broadcast_to(R, shape), A)


@tf.custom_gradient
def _fidelity(
    K: tf.Tensor, R: tf.Tensor, A: tf.Tensor
) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor | None, ...]]]:
    """The fidelity, with its gradient in closed form and from one eigendecomposition.

    With K = A Aᵀ and V, λ of Aᵀ R A:  ∂F/∂R = ½ A V λ^(-½) Vᵀ Aᵀ,  and, since the eigenvectors of
    the exchanged problem are L_Rᵀ A V λ^(-½),  ∂F/∂K = ½ R A V λ^(-3/2) Vᵀ Aᵀ R.
    No eigenvector is differentiated, so repeated eigenvalues are harmless; there is no second
    derivative.
    """
    M = linalg.product(A, linalg.product(R, A), transpose_a=True)
    # Without the padding of a Cholesky factor small eigenvalues have digits below the rounding.
    is_triangular = A.dtype == tf.float64  # as `root` makes it
    lost = linalg.rounding(A) if is_triangular else 0.01 * linalg.epsilon(A.dtype)
    roots, inverse_roots, vectors = _root_spectrum(M, lost)

    @tf.custom_gradient
    def derivatives(K: tf.Tensor, R: tf.Tensor) -> tuple[Any, Callable[..., Any]]:
        W = tf.sqrt(0.5 * inverse_roots)[..., None, :] * linalg.product(A, vectors)
        RW = inverse_roots[..., None, :] * linalg.product(R, W)
        d_K = linalg.product(RW, RW, transpose_b=True)
        d_R = linalg.product(W, W, transpose_b=True)
        return (d_K, d_R), _no_second_derivative

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        d_K, d_R = derivatives(K, R)
        weight = upstream[..., None, None]
        return weight * d_K, weight * d_R, None

    return tf.reduce_sum(roots, axis=-1), gradient


def _no_second_derivative(*_: tf.Tensor) -> Any:
    raise NotImplementedError(
        "The exact Wasserstein distance has first derivatives alone. Take differences of these "
        "for second ones."
    )


def _root_spectrum(M: tf.Tensor, lost: TensorType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return √λ, λ^(-½), damped where λ is lost in rounding, and V.

    :param lost: the part of the largest eigenvalue below which others are.
    """
    eigenvalues, vectors = linalg.eigh(M)
    eigenvalues = tf.maximum(eigenvalues, tf.zeros([], dtype=M.dtype))
    roots = tf.sqrt(eigenvalues)
    tiny = lost * eigenvalues[..., -1:] + tf.constant(1e-30, dtype=M.dtype)
    return roots, roots / (eigenvalues + tiny), vectors


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

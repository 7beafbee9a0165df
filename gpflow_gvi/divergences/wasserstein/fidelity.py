"""The fidelity of two covariances, and its gradient in closed form.

W₂² between Gaussians of equal means is tr K + tr R - 2 F(K, R) (Dowson and Landau 1982).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..._core import linalg


@check_shapes(
    "K: [broadcast batch..., B, B]",
    "R: [broadcast batch..., B, B]",
    "return: [batch...]",
)
def fidelity(K: tf.Tensor, R: tf.Tensor) -> tf.Tensor:
    """Return F = tr( (K^½ R K^½)^½ ) = Σ_i √λ_i(Aᵀ R A), where K = A Aᵀ.

    It is the part of the 2-Wasserstein distance between Gaussians that is not a trace (Dowson and
    Landau 1982). Either matrix may be rank-deficient. A K that several R share is factorised once.
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

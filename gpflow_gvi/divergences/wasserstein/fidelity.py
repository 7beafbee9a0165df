"""The fidelity of two covariances, and its gradient in closed form.

W₂² between Gaussians of equal means is tr K + tr R - 2 F(K, R) (Dowson and Landau 1982).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType

from ..._core import linalg

MAX_WHOLE = 200
"""The number of rows up to which products are not taken in blocks."""


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
    No eigenvector is differentiated, so repeated eigenvalues are harmless.
    """
    # Without the padding of a Cholesky factor small eigenvalues have digits below the rounding.
    lost = (
        linalg.rounding(A)
        if linalg.has_triangular_roots(A.dtype)
        else 0.01 * linalg.epsilon(A.dtype)
    )
    roots, inverse_roots, vectors = _root_spectrum(_congruence(A, R), lost)

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
        weight = 0.5 * upstream[..., None, None]
        AV = _root_matmul(A, vectors)
        RAV = tf.matmul(R, AV)
        d_R = _outer(AV * tf.sqrt(inverse_roots)[..., None, :])
        d_K = tf.matmul(RAV * inverse_roots[..., None, :] ** 3, RAV, transpose_b=True)
        return weight * d_K, weight * d_R, None

    return tf.reduce_sum(roots, axis=-1), gradient


def _root_spectrum(M: tf.Tensor, lost: TensorType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return √λ, λ^(-½), damped where λ is lost in rounding, and V, from M's lower triangle.

    :param lost: the part of the largest eigenvalue below which others are.
    """
    eigenvalues, vectors = tf.linalg.eigh(M)
    eigenvalues = tf.maximum(eigenvalues, tf.zeros([], dtype=M.dtype))
    roots = tf.sqrt(eigenvalues)
    tiny = lost * eigenvalues[..., -1:] + tf.constant(1e-30, dtype=M.dtype)
    return roots, roots / (eigenvalues + tiny), vectors


# Half of a triangular or symmetric matrix need not be computed. Taking such products in blocks
# saves nearly half of their time, a sixth of that of the fidelity (benchmarks/wasserstein.py).


def _is_small(M: tf.Tensor) -> bool:
    """Return whether it takes longer to start more products than to compute all of this one."""
    return M.shape[-1] is not None and M.shape[-1] <= MAX_WHOLE


def _blocks(M: tf.Tensor) -> list[tuple[Any, Any]]:
    """Return where four blocks of rows begin and end."""
    N = tf.shape(M)[-1]
    ends = [N * i // 4 for i in range(5)]
    return list(itertools.pairwise(ends))


def _congruence(A: tf.Tensor, R: tf.Tensor) -> tf.Tensor:
    """Return the lower triangle of Aᵀ R A for a root A; what is above it is not meaningful."""
    if not linalg.has_triangular_roots(A.dtype) or _is_small(A):
        return tf.matmul(A, tf.matmul(R, A), transpose_a=True)
    columns = []
    for a, b in _blocks(A):
        RA = tf.matmul(R[..., a:, a:], A[..., a:, a:b])
        column = tf.matmul(A[..., a:, a:], RA, transpose_a=True)  # rows from a on
        columns.append(_pad(column, -2, a, 0))
    return tf.concat(columns, axis=-1)


def _root_matmul(A: tf.Tensor, V: tf.Tensor) -> tf.Tensor:
    """Return A V for a root A."""
    if not linalg.has_triangular_roots(A.dtype) or _is_small(A):
        return tf.matmul(A, V)
    rows = [tf.matmul(A[..., a:b, :b], V[..., :b, :]) for a, b in _blocks(A)]
    return tf.concat(rows, axis=-2)


def _outer(W: tf.Tensor) -> tf.Tensor:
    """Return W Wᵀ for a square W."""
    if _is_small(W):
        return tf.matmul(W, W, transpose_b=True)
    N = tf.shape(W)[-1]
    rows = [
        _pad(tf.matmul(W[..., a:b, :], W[..., :b, :], transpose_b=True), -1, 0, N - b)
        for a, b in _blocks(W)
    ]
    lower = tf.linalg.band_part(tf.concat(rows, axis=-2), -1, 0)
    return tf.linalg.set_diag(lower + tf.linalg.matrix_transpose(lower), tf.linalg.diag_part(lower))


def _pad(M: tf.Tensor, axis: int, before: TensorType, after: TensorType) -> tf.Tensor:
    """Return M with zero rows (axis -2) or columns (axis -1) added."""
    paddings = [[0, 0]] * len(M.shape)
    paddings[axis] = [before, after]
    return tf.pad(M, paddings)

"""Linear algebra on covariance matrices, and the one home of jitter.

Jitter is relative to the matrix (a multiple of its mean diagonal), deterministic, and reported
when it exceeds GPflow's `default_jitter()`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_jitter

from ..errors import NotPositiveDefiniteError
from .notices import notice
from .tensorflow_private import eigh_of_xla, is_compiled_by_xla

MAXIMAL_JITTER = 1e-3
"""A matrix that needs more than this, relative to its mean diagonal, is no covariance."""

MIN_LAPACK = 200
"""The size from which LAPACK is faster than TensorFlow on a CPU."""


def epsilon(dtype: tf.DType) -> float:
    """Return the spacing of floating point numbers at one."""
    return float(np.finfo(dtype.as_numpy_dtype).eps)


@check_shapes("K: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky(K: TensorType, *, jitter: float = 0.0, name: str = "the covariance") -> tf.Tensor:
    """Return the lower Cholesky factor of K, adding to its diagonal no more than is needed.

    :param K: a symmetric matrix, positive definite up to rounding.
    :param jitter: the part of the mean diagonal that is added from the start.
    :param name: what to call the matrix in a message.
    """
    K = tf.convert_to_tensor(K)
    if jitter:
        K = add_to_diagonal(K, jitter * _scale(K))
    factor, added, scale = _escalating_cholesky(K)
    if tf.executing_eagerly():
        _require_factor(factor, K, name)
    usual = tf.constant(default_jitter(), K.dtype) * scale
    notice(
        f"{name} is not positive definite to working precision: "
        "{} was added to its diagonal. Points that (nearly) coincide do this.",
        tf.reduce_max(tf.where(added > usual, added, tf.zeros_like(added))),
    )
    return factor


def usual_jitter(K: TensorType) -> tf.Tensor:
    """Return GPflow's jitter, as a part of the mean diagonal of K where that is below one: [J].

    The log of a rate of large counts has a variance that is less than the jitter.
    """
    K = tf.convert_to_tensor(K)
    return tf.constant(default_jitter(), K.dtype) * tf.minimum(_scale(K), 1.0)


def least_jitter(K: TensorType) -> tf.Tensor:
    """Return the jitter of K_ZZ where Y may be nearly exact: [J].

    It is noise of the values at Z, and GPflow's may be more than that of Y, as the variance of a
    smooth k is many times Y's. In double precision a ten-thousandth is enough for a factor of up to
    some thousand points.
    """
    usual = usual_jitter(K)
    return 1e-4 * usual if usual.dtype == tf.float64 else usual


def cholesky_of_points(Kzz: TensorType) -> tf.Tensor:
    """Return the lower factor of K_ZZ with the least jitter: [J, M, M]."""
    return cholesky(add_to_diagonal(Kzz, least_jitter(Kzz)), name="K_ZZ")


@check_shapes("K: [batch..., M, M]", "amount: [broadcast batch...]", "return: [batch..., M, M]")
def add_to_diagonal(K: tf.Tensor, amount: TensorType) -> tf.Tensor:
    """Return K + amount · I."""
    amount = tf.convert_to_tensor(amount, dtype=K.dtype)
    return with_diagonal(K, tf.linalg.diag_part(K) + amount[..., None])


@tf.custom_gradient
def with_diagonal(
    K: tf.Tensor, diagonal: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
    """Return K, [batch..., M, M], with another diagonal, [batch..., M].

    XLA refuses the gradient of `tf.linalg.set_diag` where M is not known before a graph runs: its
    zeros have a computed shape.
    """

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return with_diagonal(upstream, tf.zeros_like(diagonal)), tf.linalg.diag_part(upstream)

    return tf.linalg.set_diag(K, diagonal), gradient


def _scale(K: tf.Tensor) -> tf.Tensor:
    """Return the mean of the diagonal, never zero, as a constant: [batch...]."""
    mean = tf.reduce_mean(tf.abs(tf.linalg.diag_part(K)), axis=-1)
    return tf.stop_gradient(tf.maximum(mean, tf.constant(1e-30, dtype=K.dtype)))


@tf.custom_gradient
def _escalating_cholesky(
    K: tf.Tensor,
) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Callable[..., tf.Tensor]]:
    """Return L Lᵀ = K + added · I with the smallest `added` of a geometric ladder that succeeds.

    The last result is the scale that the ladder is relative to.

    The gradient is written out (Murray 2016, arXiv:1602.07527, eq. 9) for the factor that was
    found: differentiating through the failed attempts would multiply their NaN by zero.
    """
    factor, added, scale = _ladder(K.dtype, K.shape.rank)(K)
    factor = tf.ensure_shape(factor, K.shape)

    def gradient(d_factor: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
        d_factor = tf.linalg.band_part(d_factor, -1, 0)
        inner = tf.linalg.band_part(tf.matmul(factor, d_factor, transpose_a=True), -1, 0)
        inner = with_diagonal(inner, 0.5 * tf.linalg.diag_part(inner))
        half = tf.linalg.triangular_solve(factor, inner, adjoint=True)  # L⁻ᵀ Φ
        full = tf.linalg.triangular_solve(factor, tf.linalg.matrix_transpose(half), adjoint=True)
        return 0.5 * (full + tf.linalg.matrix_transpose(full))

    return (factor, added, scale), gradient


@functools.cache
def _ladder(dtype: tf.DType, rank: int | None) -> Any:
    """Return the graph that takes K to L, added and the scale.

    Every model has many factors, and it takes long to trace a loop. Here it is traced once for all.
    """

    def failed(factor: tf.Tensor) -> tf.Tensor:
        finite = tf.math.is_finite(tf.linalg.diag_part(factor))
        return tf.logical_not(tf.reduce_all(finite, axis=-1))

    def factorise(K: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        scale = _scale(K)

        def attempt(
            step: tf.Tensor, added: tf.Tensor, factor: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            added = tf.where(failed(factor), tf.minimum(step, MAXIMAL_JITTER) * scale, added)
            return 10.0 * step, added, tf.linalg.cholesky(add_to_diagonal(K, added))

        _, added, factor = tf.while_loop(
            lambda step, _, factor: tf.reduce_any(failed(factor)) & (step < 10.0 * MAXIMAL_JITTER),
            attempt,
            (rounding(K), tf.zeros_like(scale), tf.linalg.cholesky(K)),
        )
        return factor, added, scale

    signature = [tf.TensorSpec(None if rank is None else [None] * rank, dtype)]
    return tf.function(factorise, input_signature=signature, autograph=False)


def _require_factor(factor: tf.Tensor, K: tf.Tensor, name: str) -> None:
    if np.all(np.isfinite(tf.linalg.diag_part(factor).numpy())):
        return
    if not np.all(np.isfinite(K.numpy())):
        raise NotPositiveDefiniteError(
            f"{name} has entries that are not finite. Look for NaN or infinite values in the "
            "inputs and in the parameters of the kernel."
        )
    smallest = float(tf.reduce_min(tf.linalg.eigvalsh(K)))
    raise NotPositiveDefiniteError(
        f"{name} is not positive semi-definite: its smallest eigenvalue is {smallest:.3g}, and "
        f"jitter up to {MAXIMAL_JITTER:g} of its mean diagonal does not mend it. Check that the "
        "kernel is positive definite on these inputs."
    )


@check_shapes("B: [batch..., M, M]", "return: [batch..., M, M]")
def cholesky_of_inverse(B: tf.Tensor) -> tf.Tensor:
    """Return the lower factor of B⁻¹ without forming B⁻¹.

    With J the reversal of rows, J B J = C Cᵀ gives B = U Uᵀ for the upper factor U = J C J, and so
    B⁻¹ = U⁻ᵀ U⁻¹ where U⁻ᵀ is lower.
    """
    upper = tf.reverse(cholesky(tf.reverse(B, [-2, -1])), [-2, -1])
    identity = tf.eye(tf.shape(B)[-1], batch_shape=tf.shape(B)[:-2], dtype=B.dtype)
    return tf.linalg.triangular_solve(upper, identity, lower=False, adjoint=True)


def root(K: tf.Tensor) -> tf.Tensor:
    """Return A with K = A Aᵀ up to rounding: lower triangular in double precision only.

    A Gram matrix of many points is singular to working precision, and to add εI to it raises its
    fidelity with R by up to √ε tr √R. The ε that makes it positive definite for certain is not felt
    in double precision; in single precision it would be some per cent of W₂², and so A is V √Λ
    there.
    """
    if K.dtype == tf.float64:
        padded = add_to_diagonal(K, 10.0 * rounding(K) * _scale(K))
        return cholesky(padded, name="the covariance of P at the batch")
    eigenvalues, vectors = eigh(K)
    scaled = vectors * tf.sqrt(tf.nn.relu(eigenvalues))[..., None, :]
    # The entries of Aᵀ R A fall by many orders of magnitude. An eigendecomposition that meets the
    # large ones first is accurate to the rounding of the small ones.
    return tf.reverse(scaled, axis=[-1])


@check_shapes("M: [batch..., M, M]", "return[0]: [batch..., M]", "return[1]: [batch..., M, M]")
def eigh(M: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return ascending eigenvalues and eigenvectors of a symmetric M, without their gradients.

    Only the lower triangle is read. Where M is not finite, neither is what is returned.
    """
    M = tf.stop_gradient(M)
    if _takes_lapack(M):
        values, vectors = tf.numpy_function(_eigh_of_array, [M], [M.dtype, M.dtype])
        return tf.ensure_shape(values, M.shape[:-1]), tf.ensure_shape(vectors, M.shape)
    values, vectors = eigh_of_xla(M) if is_compiled_by_xla() else tf.linalg.eigh(M)
    return tf.stop_gradient(values), tf.stop_gradient(vectors)


@check_shapes(
    "A: [broadcast batch..., M, M]", "B: [broadcast batch..., M, M]", "return: [batch..., M, M]"
)
def product(
    A: tf.Tensor, B: tf.Tensor, *, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """Return the product of two square matrices, without its gradient.

    BLAS computes half of one that is symmetric, M Mᵀ.
    """
    A, B = tf.stop_gradient(A), tf.stop_gradient(B)
    if not _takes_lapack(A):
        return tf.stop_gradient(tf.matmul(A, B, transpose_a=transpose_a, transpose_b=transpose_b))

    def product_of_arrays(A: AnyNDArray, B: AnyNDArray) -> AnyNDArray:
        left = np.swapaxes(A, -1, -2) if transpose_a else A
        return left @ (np.swapaxes(B, -1, -2) if transpose_b else B)

    shape = tf.broadcast_static_shape(A.shape, B.shape)
    return tf.ensure_shape(tf.numpy_function(product_of_arrays, [A, B], A.dtype), shape)


@check_shapes("A: [batch..., M, N]", "return: [batch..., M, M]")
def outer_product(A: tf.Tensor) -> tf.Tensor:
    """Return A Aᵀ, of which BLAS computes half where it is not a part of a graph."""
    if tf.is_symbolic_tensor(A) or not _takes_lapack(A):
        return tf.matmul(A, A, transpose_b=True)

    @tf.custom_gradient
    def by_blas(A: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        array = A.numpy()
        found = tf.constant(array @ np.swapaxes(array, -1, -2))
        return found, lambda upstream: tf.matmul(upstream + tf.linalg.matrix_transpose(upstream), A)

    return by_blas(A)


def may_call_host() -> bool:
    """Return True if NumPy may compute a part of a graph, or of an eager computation.

    XLA compiles no such call, and a GPU would wait for one.
    """
    return not (is_compiled_by_xla() or tf.config.list_logical_devices("GPU"))


def _takes_lapack(M: tf.Tensor) -> bool:
    """Return True if NumPy computes with M, by a LAPACK and a BLAS for this processor.

    On a CPU its eigendecompositions and products of large matrices are faster than TensorFlow's.
    Models saved for use elsewhere cannot have it, so it is for distances alone.
    """
    is_small = M.shape[-1] is not None and M.shape[-1] < MIN_LAPACK
    return M.dtype == tf.float64 and not is_small and may_call_host()


def _eigh_of_array(M: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    # LAPACK may overlook NaN, or fail to converge.
    is_finite = np.isfinite(M).all(axis=(-2, -1), keepdims=True)
    eigenvalues, vectors = np.linalg.eigh(np.where(is_finite, M, np.zeros_like(M)))
    return np.where(is_finite[..., 0], eigenvalues, np.nan), np.where(is_finite, vectors, np.nan)


@check_shapes("L: [batch..., M, M]", "return: [batch..., M, M]")
def inverse_of_triangular(L: tf.Tensor) -> tf.Tensor:
    """Return L⁻¹: products with it are faster than solves with many columns."""
    identity = tf.eye(tf.shape(L)[-1], batch_shape=tf.shape(L)[:-2], dtype=L.dtype)
    return tf.linalg.triangular_solve(L, identity)


@check_shapes("M: [batch..., M, M]", "return: [batch..., M, M]")
def positive_part(M: tf.Tensor) -> tf.Tensor:
    """Return a symmetric matrix without the negative eigenvalues that rounding or noise makes.

    The gradient passes, as that of `not_negative`.
    """
    constant = tf.stop_gradient(M)

    def negative_part() -> tf.Tensor:
        eigenvalues, vectors = eigh(constant)
        scaled = vectors * tf.nn.relu(-eigenvalues)[..., None, :]
        return tf.matmul(scaled, vectors, transpose_b=True)

    # A factorisation is far cheaper, and only a positive definite matrix has one.
    is_positive = tf.reduce_all(tf.math.is_finite(tf.linalg.cholesky(constant)))
    return M + tf.cond(is_positive, lambda: tf.zeros_like(constant), negative_part)


@check_shapes("M: [batch..., M, M]", "return[0]: [batch..., M, M]", "return[1]: [batch..., M]")
def signed_root(M: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return A and signs s with M = A diag(s) Aᵀ, for any symmetric M: s = 1 if M is positive."""

    def by_eigenvalues() -> tuple[tf.Tensor, tf.Tensor]:
        values, vectors = tf.linalg.eigh(M)
        return vectors * tf.sqrt(tf.abs(values))[..., None, :], tf.sign(values)

    factor = tf.linalg.cholesky(M)  # NaN if M is not positive
    signs = tf.ones_like(tf.linalg.diag_part(factor))
    is_positive = tf.reduce_all(tf.math.is_finite(factor))
    return tf.cond(is_positive, lambda: (factor, signs), by_eigenvalues)


def rounding(M: tf.Tensor) -> tf.Tensor:
    """Return the rounding error of a zero eigenvalue, relative to the largest eigenvalue."""
    return epsilon(M.dtype) * tf.cast(tf.shape(M)[-1], M.dtype)


@check_shapes("value: [any...]", "return: [any...]")
def not_negative(value: tf.Tensor) -> tf.Tensor:
    """Cut off the rounding below zero of a quantity that is not negative.

    The gradient passes: it has its digits where the value, near its minimum, has lost them.
    """
    return value + tf.stop_gradient(tf.nn.relu(-value))


@check_shapes("variance: [any...]", "reference: [broadcast any...]", "return: [any...]")
def floor(
    variance: tf.Tensor, reference: tf.Tensor, *, relative: float, suspect: str = ""
) -> tf.Tensor:
    """Return the variance, no smaller than `relative` times the reference variance.

    A difference of positive numbers can round below zero, which is corrected silently. A covariance
    that can be truly negative gives its name as `suspect`, and a notice says how many entries lay
    clearly below zero.
    """
    if suspect:
        tolerance = tf.constant(epsilon(variance.dtype) ** 0.5, variance.dtype)
        count = tf.reduce_sum(tf.cast(variance < -tolerance * reference, tf.int32))
        message = f"{{}} marginal variances of {suspect} were negative and were raised to a floor."
        notice(message, count, urgent=True)
    return tf.maximum(variance, tf.constant(relative, variance.dtype) * reference)

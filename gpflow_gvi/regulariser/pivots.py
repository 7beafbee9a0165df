"""Pivots of a partial Cholesky factorisation of k(X, X): rows of X at which most variance is left.

NumPy chooses them, whatever evaluates the kernel. XLA and GPUs cannot call it, and have a loop of
TensorFlow's operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, SharedIndependent

from .._core import images, linalg, outputs, row_blocks
from ..kernels.feature_map import FeatureMap
from ..kernels.numpy_kernels import has_numpy_kernel, numpy_kernel
from ..kernels.numpy_parameters import value_of

MAX_BLOCK = 64
"""The maximal number of pivots between two passes over the data; it bounds the memory."""

FEW_ROWS = 100
"""The number of rows up to which all are candidates. Beyond it 2√N are, whose covariance is as
large as four rows of k(X, X)."""

NETWORK_BATCH_SIZE = 1_000
"""The maximal number of rows for one call of a network, whose layers hold far more than X."""

ROUNDINGS = 100.0
"""The number of roundings of a variance that cannot be told from zero."""

Covariance = Callable[[AnyNDArray, AnyNDArray, AnyNDArray], None]
"""Writes the covariances of rows and of others, by their indices, into an array: [J, B, C]."""


def greedy_rows(
    kernel: Kernel, X: AnyNDArray, num_points: int, tolerance: float
) -> tuple[AnyNDArray, float]:
    """Return up to M pivots of k(X, X), and how much variance they leave in all.

    Variances only decrease as pivots are added. So among some candidates of largest variance one
    can go on choosing, without any other row, until the best of them falls below what the least
    of them had at first: no other row ever had more. Only then is L computed at all rows, for the
    new pivots together and by matrix products. The choice is the greedy one exactly (the lazy
    evaluation of Minoux 1978), and L is read once for many pivots instead of once for each.

    :param tolerance: the part of the variance that may be left.
    """
    write, variance = _evaluated(kernel, X)
    (J, N), M = variance.shape, min(num_points, len(X))
    rounding, left = _rounding(variance), float(variance.sum())
    tolerated = tolerance * left
    every, C = np.arange(N), N if N <= FEW_ROWS else 2 * math.isqrt(N)
    L: AnyNDArray = np.empty([J, M, N], variance.dtype)
    pivots: AnyNDArray = np.empty(0, np.int64)
    while len(pivots) < M and left > tolerated:
        m = len(pivots)
        rows, least = _of_largest(variance.sum(axis=0), C)
        S: AnyNDArray = np.empty([J, len(rows), len(rows)], L.dtype)
        write(rows, rows, S)
        S -= np.swapaxes(L[:, :m, rows], 1, 2) @ L[:, :m, rows]
        count = min(M - m, MAX_BLOCK)
        picks, factor = _chosen(S, variance[:, rows], rounding[:, rows], count, least)
        new = rows[picks]
        added = L[:, m : m + len(new)]
        write(new, every, added)
        _solve(L[:, :m], new, factor[:, :, picks], added)
        explained = np.einsum("jbn,jbn->b", added, added).cumsum()
        needed = np.count_nonzero(left - np.append(0.0, explained[:-1]) > tolerated)
        pivots = np.append(pivots, new[:needed])
        variance = variance - np.einsum("jbn,jbn->jn", added, added)
        # NaN is not below anything: it stays, and raises at the end.
        variance[variance <= rounding] = 0.0
        variance[:, new] = 0.0
        left = float(variance.sum())
    return pivots, left


def _evaluated(kernel: Kernel, X: AnyNDArray) -> tuple[Covariance, AnyNDArray]:
    """Return a function that evaluates the kernel between rows, and the variances: [J, N]."""
    if has_numpy_kernel(kernel, X.shape[1:]):
        # To read parameters takes as long as to evaluate the kernel between a few rows.
        values = {id(parameter): value_of(parameter) for parameter in kernel.parameters}

        def by_numpy(rows: AnyNDArray, columns: AnyNDArray, out: AnyNDArray) -> None:
            numpy_kernel(kernel, X[rows], X[columns], values=values).covariance(out[0])

        return by_numpy, numpy_kernel(kernel, X, values=values).variance()[None]
    points = tf.constant(X)

    def by_gpflow(rows: AnyNDArray, columns: AnyNDArray, out: AnyNDArray) -> None:
        out[:] = outputs.covariance(kernel, *(tf.gather(points, each) for each in (rows, columns)))

    return by_gpflow, np.ascontiguousarray(outputs.variance(kernel, points).numpy().T)


def _of_largest(variance: AnyNDArray, C: int) -> tuple[AnyNDArray, Any]:
    """Return the indices of the C largest variances, first among equals, and the least of them."""
    if len(variance) == C:
        return np.arange(C), 0.0
    least = np.partition(variance, -C)[-C]
    larger = np.flatnonzero(variance > least)
    equal = np.flatnonzero(variance == least)[: C - len(larger)]
    return np.sort(np.append(larger, equal)), least


def _rounding(variance: AnyNDArray) -> AnyNDArray:
    """Return the values below which variances cannot be told from zero, given those at first."""
    return ROUNDINGS * np.finfo(variance.dtype).eps * variance


def _solve(L: AnyNDArray, new: AnyNDArray, T: AnyNDArray, K: AnyNDArray) -> None:
    """Write T⁻ᵀ (K - L(new)ᵀ L), the rows of L that belong to new pivots, over K: [J, B, N].

    An output of which nothing is left at a pivot that the others chose has zeros in T there: it
    leaves the other rows as they are, and what it is divided by does not matter.
    """
    diagonal = np.einsum("jbb->jb", T)
    diagonal[diagonal == 0.0] = 1.0
    multiply, solve = scipy.linalg.get_blas_funcs(("gemm", "trsm"), (K,))
    for j, rest in enumerate(K):  # in place; what has rows here has columns in Fortran
        if L.shape[1]:
            multiply(-1.0, L[j].T, L[j][:, new], 1.0, rest.T, overwrite_c=True)
        solve(1.0, T[j], rest.T, side=1, overwrite_b=True)


def _chosen(
    S: AnyNDArray, variance: AnyNDArray, rounding: AnyNDArray, count: int, least: Any = 0.0
) -> tuple[AnyNDArray, AnyNDArray]:
    """Return pivots of a variance of `least` or more, [B], and their rows of the factor, [J, B, C].

    The variances, [J, C], are the diagonal of S, of which more digits may be known.
    """
    left, pivots = variance.copy(), []
    lost = rounding.sum(axis=0).max()
    factor: AnyNDArray = np.zeros([len(S), count, S.shape[-1]], S.dtype)
    for i in range(min(count, S.shape[-1])):
        total = left[0] if len(left) == 1 else left.sum(axis=0)
        p = total.argmax()
        if not total[p] > lost:  # rows of which only rounding is left could be chosen
            left[left <= rounding] = 0.0
            total = left.sum(axis=0)
            p = total.argmax()
        if not (total[p] > 0.0 and total[p] >= least):
            break
        for j, found in enumerate(factor[:, i]):
            if left[j, p] > rounding[j, p]:
                root = math.sqrt(left[j, p])
                np.dot(factor[j, :i, p], factor[j, :i], out=found)
                np.subtract(S[j, p], found, out=found)
                found /= root
                found[p] = root  # the covariance of p and p, of which more is known
                left[j] -= found * found
        left[:, p] = 0.0
        pivots.append(p)
    return np.array(pivots, np.int64), factor[:, : len(pivots)]


def without_network(kernel: Kernel, X: tf.Tensor) -> tuple[Kernel, tf.Tensor]:
    """Return a kernel of the same pivots, and what it takes: the network runs once, in parts."""
    if isinstance(kernel, SharedIndependent):  # the sum of equal variances is largest where one is
        return without_network(kernel.kernel, X)
    if not isinstance(kernel, FeatureMap):
        return kernel, X
    (features,) = row_blocks.tensors_by_blocks(
        lambda rows: (kernel.features(images.as_rows(rows, kernel)),), X, size=NETWORK_BATCH_SIZE
    )
    return without_network(kernel.base_kernel, features)


def greedy_pivots(
    kernel: Kernel, X: tf.Tensor, num_points: int, tolerance: float
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return the rows of X that `greedy_variance` would choose, as a part of any graph: [M].

    They are constants to a gradient. The first of equal rows is chosen. All of k(X, X) is computed.
    Where shapes must be known there are always M, and the second value says which are chosen: [M].
    """
    kernel, X = without_network(kernel, X)
    X = tf.stop_gradient(X)

    def chosen(S: AnyNDArray, variance: AnyNDArray) -> AnyNDArray:
        count = min(num_points, S.shape[-1])
        pivots, factor = _chosen(S, variance, _rounding(variance), count)
        explained = np.square(factor).sum(axis=(0, 2)).cumsum()
        left = variance.sum() - np.append(0.0, explained[:-1])
        return pivots[left > tolerance * variance.sum()]

    covariances = tf.stop_gradient(outputs.covariance(kernel, X))
    variance = tf.stop_gradient(tf.transpose(outputs.variance(kernel, X)))
    if not linalg.may_call_host():
        return _chosen_by_loop(covariances, variance, num_points, tolerance)
    pivots = tf.numpy_function(chosen, [covariances, variance], tf.int64, stateful=False)
    return tf.ensure_shape(pivots, [None]), None


def _chosen_by_loop(
    S: tf.Tensor, variance: tf.Tensor, num_points: int, tolerance: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return pivots of k(X, X), and which of them were chosen, by operations of TensorFlow."""
    M = tf.minimum(num_points, tf.shape(S)[-1])
    rounding = ROUNDINGS * linalg.epsilon(variance.dtype) * variance
    tolerated = tolerance * tf.reduce_sum(variance)
    zero = tf.zeros([], S.dtype)

    def add(
        i: tf.Tensor, left: tf.Tensor, L: tf.Tensor, pivots: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        p = tf.argmax(tf.reduce_sum(left, axis=0), output_type=tf.int32)
        explained = tf.matmul(L[:, :, p, None], L, transpose_a=True)[:, 0]  # [J, N]
        root = tf.sqrt(left[:, p, None])
        factor = tf.math.divide_no_nan(S[:, p] - explained, root)
        is_pivot = tf.range(tf.shape(left)[-1]) == p
        left = left - tf.square(factor)
        left = tf.where((left <= rounding) | is_pivot, zero, left)  # NaN stays
        is_row = tf.range(M) == i
        L = tf.where(is_row[:, None], factor[:, None], L)
        return i + 1, left, L, tf.where(is_row, p, pivots)

    count, _, _, pivots = tf.while_loop(
        lambda i, left, *_: (i < M) & (tf.reduce_sum(left) > tolerated),
        add,
        (
            0,
            tf.where(variance <= rounding, zero, variance),
            tf.zeros([tf.shape(S)[0], M, tf.shape(S)[-1]], S.dtype),
            tf.zeros([M], tf.int32),
        ),
    )
    return pivots, tf.range(M) < count

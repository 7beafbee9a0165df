"""Pivots of a partial Cholesky factorisation of k(X, X), chosen by lazy evaluation.

The kernel is evaluated by graphs. All else is done by NumPy, on numbers: it takes less time for
small matrices to start an operation, and TensorFlow has no array to which rows could be added.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, SharedIndependent

from .._core import linalg, outputs
from .._core.graphs import without_gradients
from ..kernels.feature_map import FeatureMap
from ..kernels.plain import EVERY, Plain, plain

MAX_BLOCK = 64
"""The maximal number of pivots between two passes over the data; it bounds the memory."""

FEW_ROWS = 1_000
"""The number of rows up to which all are candidates, where NumPy evaluates the kernel."""

MAX_ROWS_OF_LAPACK = 300
"""The number of rows up to which LAPACK factorises all of K in less time than M rows of it take."""

MIN_TOLERANCE_OF_LAPACK = 1e-10
"""A smaller part of the variance is not told from the rounding of LAPACK's differences."""

ROUNDINGS = 100.0
"""The number of roundings of a variance that cannot be told from zero."""

Row = Callable[[Any], AnyNDArray]
"""From a number i to covariances of row i: [J, C]."""

Evaluate = Callable[..., Any]
"""From a function of a kernel and of arrays, and the arrays, to its value as a tensor."""


def greedy_pivots(
    kernel: Kernel, X: tf.Tensor, num_points: int, tolerance: float
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return the rows of X that `greedy_variance` would choose, as a part of any graph: [M].

    They are constants to a gradient. The first of equal rows is chosen. All of k(X, X) is computed.
    Where shapes must be known there are always M, and the second value says which are chosen: [M].
    """
    while isinstance(kernel, SharedIndependent | FeatureMap):
        if isinstance(kernel, FeatureMap):  # the network runs once
            X = kernel.features(X)
            kernel = kernel.base_kernel
        else:
            kernel = kernel.kernel
    X = tf.stop_gradient(X)

    def chosen(S: AnyNDArray, variance: AnyNDArray) -> AnyNDArray:
        L: AnyNDArray = np.empty([len(variance), min(num_points, len(S[0])), len(S[0])], S.dtype)
        left, tolerated = variance.copy(), tolerance * variance.sum()
        return _chosen(lambda i: S[:, i].copy(), L, 0, left, _rounding(variance), 0.0, tolerated)

    covariances = tf.stop_gradient(outputs.covariance(kernel, X))
    variance = tf.stop_gradient(tf.transpose(outputs.variance(kernel, X)))
    if not linalg.may_call_host():
        return _chosen_by_loop(covariances, variance, num_points, tolerance)
    pivots = tf.numpy_function(chosen, [covariances, variance], tf.int64, stateful=False)
    return tf.ensure_shape(pivots, [None]), None


def _chosen_by_loop(
    S: tf.Tensor, variance: tf.Tensor, num_points: int, tolerance: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return pivots of a covariance, and which of them were chosen, by operations of TensorFlow.

    :param S: k(X, X), [J, N, N].
    :param variance: its diagonal, [J, N].
    """
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


def numeric_pivots(
    kernel: Kernel, X: AnyNDArray, num_points: int, tolerance: float
) -> tuple[AnyNDArray, float]:
    """Return up to M pivots of k(X, X), and how much variance they leave in all."""
    known = plain(kernel, X)
    if known is None:
        return _pivots(_InGraphs(_graphs_of(kernel), X), num_points, tolerance)
    is_told_from_rounding = X.dtype == np.float64 and tolerance >= MIN_TOLERANCE_OF_LAPACK
    if len(X) <= MAX_ROWS_OF_LAPACK and is_told_from_rounding:
        S = known.covariance(EVERY, np.empty([len(X), len(X)]))
        np.fill_diagonal(S, known.variance())  # without rounding, so that equal ones are equal
        return _of_all_rows(S, num_points, tolerance)
    return _pivots(_InNumpy(known, lambda rows: plain(kernel, X[rows])), num_points, tolerance)


def _of_all_rows(S: AnyNDArray, M: int, tolerance: float) -> tuple[AnyNDArray, float]:
    """Return up to M pivots of a matrix by LAPACK, and what they leave of its trace.

    The factorisation (Lucas 2004, LAPACK Working Note 161) stops where no variance is above
    `smallest`: all of them are no more than may be left then.

    :param S: [N, N]; it is overwritten.
    """
    total, N = np.trace(S), len(S)
    smallest = tolerance * total / N
    L, order, rank, _ = scipy.linalg.lapack.dpstrf(S.T, tol=smallest, lower=1, overwrite_a=1)
    explained = np.square(np.tril(L)[:, : min(M, rank)]).sum(axis=0)
    left = total - np.append(0.0, explained.cumsum())
    needed = np.count_nonzero(~(left[:-1] <= tolerance * total))  # NaN stays, and raises at the end
    return order[:needed].astype(np.int64) - 1, float(left[needed])


class _Graphs(NamedTuple):
    """Compiled functions of a kernel and the variables that they read."""

    variables: list[Any]
    functions: dict[Any, Any]


_graphs: weakref.WeakKeyDictionary[Kernel, _Graphs] = weakref.WeakKeyDictionary()


def _graphs_of(kernel: Kernel) -> Evaluate:
    """Return an evaluation by graphs of the kernel, traced again if it has new variables."""
    variables = [variable.ref() for variable in kernel.variables]
    graphs = _graphs.get(kernel)
    if graphs is None or graphs.variables != variables:
        graphs = _graphs[kernel] = _Graphs(variables, {})
    alive = weakref.ref(kernel)  # a graph of the kernel itself would keep it

    def evaluate(function: Callable[..., Any], *arrays: Any) -> Any:
        tensors = [tf.convert_to_tensor(array) for array in arrays]
        specs = tuple(tf.TensorSpec([None, *each.shape[1:]], each.dtype) for each in tensors)
        key = function, specs
        if key not in graphs.functions:
            graphs.functions[key] = without_gradients(
                lambda *arrays: function(alive(), *arrays), *specs
            )
        return graphs.functions[key](*tensors)

    return evaluate


class _Covariances(Protocol):
    """The covariances of each output at rows of X."""

    def num_candidates(self, N: int) -> int:
        """Return the number of rows to choose among between two passes over all N of them."""

    def variance(self) -> AnyNDArray:
        """Return k(X, X)'s diagonal: [J, N]."""

    def among(self, rows: AnyNDArray) -> Row:
        """Return a function from i to the covariances of row i of these and all of these."""

    def with_all(self, rows: AnyNDArray, out: AnyNDArray) -> None:
        """Write the covariances of rows and all rows into an array: [J, B, N]."""


class _InNumpy:
    def __init__(self, covariances: Plain, of_rows: Callable[[AnyNDArray], Any]) -> None:
        self._covariances = covariances
        self._of_rows = of_rows

    def num_candidates(self, N: int) -> int:
        return max(FEW_ROWS, 4 * math.isqrt(N))

    def variance(self) -> AnyNDArray:
        return self._covariances.variance()[None]

    def among(self, rows: AnyNDArray) -> Row:
        some = self._of_rows(rows)
        out: AnyNDArray = np.empty([1, len(rows)], self.variance().dtype)
        return lambda i: some.covariance(slice(i, i + 1), out)

    def with_all(self, rows: AnyNDArray, out: AnyNDArray) -> None:
        self._covariances.covariance(rows, out[0])


class _InGraphs:
    def __init__(self, evaluate: Evaluate, X: AnyNDArray) -> None:
        self._evaluate = evaluate
        self._X = tf.constant(X)

    def num_candidates(self, N: int) -> int:
        """Return √N, whose covariance is as large as one row of k(X, X): it may take long."""
        return math.isqrt(N - 1) + 1

    def variance(self) -> AnyNDArray:
        return np.ascontiguousarray(self._evaluate(outputs.variance, self._X).numpy().T)

    def among(self, rows: AnyNDArray) -> Row:
        S: AnyNDArray = self._evaluate(_among, self._X, rows).numpy()
        return lambda i: S[:, i].copy()

    def with_all(self, rows: AnyNDArray, out: AnyNDArray) -> None:
        out[:] = self._evaluate(_with_all, self._X, rows)


def _among(kernel: Kernel, X: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return outputs.covariance(kernel, tf.gather(X, rows))


def _with_all(kernel: Kernel, X: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    return outputs.covariance(kernel, tf.gather(X, rows), X)


def _pivots(covariances: _Covariances, M: int, tolerance: float) -> tuple[AnyNDArray, float]:
    """Return up to M pivots of k(X, X), and how much variance they leave in all.

    Variances only decrease as pivots are added. So among some candidates of largest variance one
    can go on choosing, without any other row, until the best of them falls below what the least
    of them had at first: no other row ever had more. Only then is L computed at all rows, for the
    new pivots together and by matrix products. The choice is the greedy one exactly (the lazy
    evaluation of Minoux 1978), and L is read once for many pivots instead of once for each.
    """
    variance = covariances.variance()  # [J, N], what is left of it
    J, N = variance.shape
    M = min(M, N)
    rounding, tolerated = _rounding(variance), tolerance * variance.sum()
    C = min(N, covariances.num_candidates(N))
    L: AnyNDArray = np.empty([J, M, N], variance.dtype)
    if C == N:
        left = variance.copy()
        pivots = _chosen(covariances.among(np.arange(N)), L, 0, left, rounding, 0.0, tolerated)
        return pivots, float(left.sum())
    pivots, m = np.empty(M, np.int64), 0
    while m < M and variance.sum() > tolerated:
        candidates, least = _of_largest(variance.sum(axis=0), C)
        L_C = np.empty([J, min(M, m + MAX_BLOCK), C], variance.dtype)
        L_C[:, :m] = L[:, :m, candidates]
        left, lost = variance[:, candidates], rounding[:, candidates]
        picks = _chosen(covariances.among(candidates), L_C, m, left, lost, least, -np.inf)
        new = candidates[picks]
        added = L[:, m : m + len(new)]
        covariances.with_all(new, added)
        _solve(L[:, :m], new, L_C[:, m : m + len(new), picks], added)
        explained = np.einsum("jbn,jbn->b", added, added).cumsum()
        needed = variance.sum() - np.append(0.0, explained[:-1]) > tolerated
        variance = variance - np.einsum("jbn,jbn->jn", added, added)
        # NaN is not below anything: it stays, and raises at the end.
        variance[variance <= rounding] = 0.0
        variance[:, new] = 0.0
        pivots[m : m + len(new)] = new
        m += np.count_nonzero(needed)
    return pivots[:m], float(variance.sum())


def _rounding(variance: AnyNDArray) -> AnyNDArray:
    """Return the values below which variances cannot be told from zero, given those at first."""
    return ROUNDINGS * np.finfo(variance.dtype).eps * variance


def _of_largest(variance: AnyNDArray, C: int) -> tuple[AnyNDArray, Any]:
    """Return the indices of the C largest variances, first among equals, and the least of them."""
    least = np.partition(variance, -C)[-C]
    rows = np.flatnonzero(variance >= least)
    if len(rows) > C:
        larger = rows[variance[rows] > least]
        equal = rows[variance[rows] == least]
        rows = np.sort(np.concatenate([larger, equal[: C - len(larger)]]))
    return rows, least


def _solve(L: AnyNDArray, new: AnyNDArray, L_new: AnyNDArray, K: AnyNDArray) -> None:
    """Write L_newᵀ \\ (K - L(new)ᵀ L), the rows of L that belong to new pivots, over K: [J, B, N].

    An output of which nothing is left at a pivot that the others chose has zeros in L_new there:
    it leaves the other rows as they are, and what it is divided by does not matter.
    """
    diagonal = np.einsum("jbb->jb", L_new)
    diagonal[diagonal == 0.0] = 1.0
    multiply, solve = scipy.linalg.get_blas_funcs(("gemm", "trsm"), (K,))
    for j, rest in enumerate(K):  # in place; what has rows here has columns in Fortran
        if L.shape[1]:
            multiply(-1.0, L[j].T, L[j][:, new], 1.0, rest.T, overwrite_c=True)
        solve(1.0, L_new[j], rest.T, side=1, overwrite_b=True)


def _chosen(
    row: Row,
    L: AnyNDArray,
    m: int,
    variance: AnyNDArray,
    rounding: AnyNDArray,
    min_variance: Any,
    tolerated: Any,
) -> AnyNDArray:
    """Return pivots of a variance of `min_variance` or more: [B].

    :param row: k(x_p, X), from p: [J, C]. It may be overwritten, and is called once for each p.
    :param L: its first m rows are known, those of the pivots are written: [J, M, C].
    :param variance: what the first m leave, and then all: [J, C].
    :param rounding: what cannot be told from zero.
    :param tolerated: no pivot is chosen where no more than this is left in all.
    """
    pivots: list[Any] = []
    lost = rounding.sum(axis=0).max()
    remaining = variance.sum()
    for i in range(m, L.shape[1]):
        total = _of_rows(variance)
        p = total.argmax()
        if not total[p] > lost:  # rows of which only rounding is left could be chosen
            # NaN is not below anything: it stays, and raises at the end.
            np.multiply(variance, variance > rounding, out=variance)
            total = _of_rows(variance)
            p = total.argmax()
        if not remaining > tolerated:  # up to the rounding of many differences
            remaining = total.sum()
        largest = total[p]
        if not (largest > 0.0 and largest >= min_variance and remaining > tolerated):
            break
        for j, covariance in enumerate(row(p)):
            factor, left = L[j], variance[j]
            root = math.sqrt(left[p]) if left[p] > rounding[j, p] else 0.0
            covariance -= factor[:i, p] @ factor[:i]
            found = np.multiply(covariance, 1.0 / root if root > 0.0 else 0.0, out=factor[i])
            found[p] = root  # the covariance of p and p, of which more is known
            left -= np.square(found, out=covariance)
            left[p] = 0.0
            remaining -= found @ found
        pivots.append(p)
    np.multiply(variance, variance > rounding, out=variance)
    return np.array(pivots, np.int64)


def _of_rows(variance: AnyNDArray) -> AnyNDArray:
    """Return the variance of each row, that of all outputs: [C]."""
    total: AnyNDArray = variance[0] if len(variance) == 1 else variance.sum(axis=0)
    return total

"""Pivots of a partial Cholesky factorisation of k(X, X), chosen by lazy evaluation.

A loop over all rows that XLA compiles would be shorter, and several times slower for large N: it
reads L once for each pivot, and is bound by memory.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from gpflow.kernels import Kernel, SharedIndependent

from .._core import outputs
from .._core.linalg import epsilon
from ..kernels.feature_map import FeatureMap
from ..kernels.structure import by_structure

MAX_BLOCK = 64
"""The maximal number of pivots between two passes over the data; it bounds the memory."""


def greedy_pivots(kernel: Kernel, X: tf.Tensor, num_points: int, tolerance: float) -> tf.Tensor:
    """Return the rows of X that `greedy_variance` would choose, as a part of any graph: [M].

    They are constants to a gradient. Of equal rows the first is chosen.
    """
    while isinstance(kernel, SharedIndependent | FeatureMap):
        if isinstance(kernel, FeatureMap):  # the network runs once
            X = kernel.features(X)
            kernel = kernel.base_kernel
        else:
            kernel = kernel.kernel
    X = tf.stop_gradient(X)
    pivots, _ = _pivots(kernel, X, tf.constant(num_points), tf.constant(tolerance, X.dtype))
    return pivots


class _Graph(NamedTuple):
    """A compiled selection and the variables that it reads."""

    variables: list[Any]
    pivots: Callable[..., Any]


_graphs: weakref.WeakKeyDictionary[Kernel, _Graph] = weakref.WeakKeyDictionary()


def _with_own_graph(kernel: Kernel, *args: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Run `_pivots` as a graph, traced once for each kernel and again if it has new variables."""
    variables = [variable.ref() for variable in kernel.variables]
    graph = _graphs.get(kernel)
    if graph is None or graph.variables != variables:
        graph = _Graph(
            variables,
            tf.function(functools.partial(_pivots), reduce_retracing=True, autograph=False),
        )
        _graphs[kernel] = graph
    return graph.pivots(kernel, *args)


def compiled_pivots(kernel: Kernel, *args: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Run `_pivots` as a graph: that of all kernels of one structure, or the kernel's own."""
    return by_structure(_pivots, _with_own_graph)(kernel, *args)


class _Factor(NamedTuple):
    """A partial pivoted Cholesky factorisation, k_j(X, X) ≈ L_jᵀ L_j for each output j."""

    pivots: tf.Tensor  # [m]
    L: tf.Tensor  # [J, m, N]
    variance: tf.Tensor  # [N, J], what is left of it


def _pivots(
    kernel: Kernel, X: tf.Tensor, M: tf.Tensor, tolerance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return up to M pivots of k(X, X), and how much variance they leave in all."""
    variance = outputs.variance(kernel, X)  # [N, J]
    rounding = 100.0 * epsilon(X.dtype) * variance
    tolerated = tolerance * tf.reduce_sum(variance)
    N, J = tf.unstack(tf.shape(variance), num=2)

    def unfinished(factor: _Factor) -> tf.Tensor:
        return (tf.size(factor.pivots) < M) & (tf.reduce_sum(factor.variance) > tolerated)

    def extend(factor: _Factor) -> list[_Factor]:
        max_pivots = tf.minimum(M - tf.size(factor.pivots), MAX_BLOCK)
        return [_extended(factor, kernel, X, rounding, tolerated, max_pivots)]

    [factor] = tf.while_loop(
        unfinished,
        extend,
        [_Factor(tf.zeros([0], tf.int32), tf.zeros([J, 0, N], X.dtype), variance)],
        shape_invariants=[_Factor(*(tf.TensorShape(rank * [None]) for rank in (1, 3, 2)))],
    )
    return factor.pivots, tf.reduce_sum(factor.variance)


def _extended(
    factor: _Factor,
    kernel: Kernel,
    X: tf.Tensor,
    rounding: tf.Tensor,
    tolerated: tf.Tensor,
    max_pivots: tf.Tensor,
) -> _Factor:
    """Return the factorisation with one to `max_pivots` pivots more.

    Variances only decrease as pivots are added. So among the √N candidates of largest variance one
    can go on choosing, without any other row, until the best of them falls below what the least
    of them had at first: no other row ever had more. Only then is L computed at all rows, for the
    new pivots together and by matrix products. The choice is the greedy one exactly (the lazy
    evaluation of Minoux 1978), and L is read once for many pivots instead of once for each.
    """
    pivots, L, variance = factor
    # The covariance of √N candidates is as large as one row of k(X, X).
    C = tf.cast(tf.math.ceil(tf.sqrt(tf.cast(tf.shape(X)[0], tf.float64))), tf.int32)
    largest, candidates = tf.math.top_k(tf.reduce_sum(variance, axis=1), C)
    L_C = tf.gather(L, candidates, axis=2)  # [J, m, C]
    S = outputs.covariance(kernel, tf.gather(X, candidates))
    # With its diagonal taken from what is known, the first candidate is sure to be chosen.
    S = tf.linalg.set_diag(
        S - tf.matmul(L_C, L_C, transpose_a=True), tf.transpose(tf.gather(variance, candidates))
    )  # [J, C, C]
    picks, L_picks = _dense_pivots(
        S,
        tf.transpose(tf.gather(rounding, candidates)),
        max_pivots=max_pivots,
        min_variance=largest[-1],
    )
    new = tf.gather(candidates, picks)  # [B]
    rows = _new_rows(kernel, X, new, L, L_picks)  # [J, B, N]
    squares = rows**2

    explained = tf.cumsum(tf.reduce_sum(squares, axis=[0, 2]), exclusive=True)  # [B]
    needed = tf.reduce_sum(variance) - explained > tolerated
    variance -= tf.transpose(tf.reduce_sum(squares, axis=1))
    # NaN is not below anything: it stays, and raises at the end.
    variance = tf.where(variance <= rounding, tf.zeros_like(variance), variance)
    nothing = tf.zeros_like(tf.gather(variance, new))
    variance = tf.tensor_scatter_nd_update(variance, new[:, None], nothing)
    return _Factor(
        tf.concat([pivots, tf.boolean_mask(new, needed)], 0),
        tf.concat([L, rows], 1),
        variance,
    )


def _new_rows(
    kernel: Kernel, X: tf.Tensor, new: tf.Tensor, L: tf.Tensor, L_new: tf.Tensor
) -> tf.Tensor:
    """Return the rows of L that belong to new pivots, given them at the pivots: [J, B, N]."""
    rest = outputs.covariance(kernel, tf.gather(X, new), X)
    rest -= tf.matmul(tf.gather(L, new, axis=-1), L, transpose_a=True)
    # An output of which nothing is left at a pivot that the others chose has zeros in L_new there:
    # it leaves the other rows as they are, and what it is divided by does not matter.
    diagonal = tf.linalg.diag_part(L_new)  # [J, B]
    L_new = tf.linalg.set_diag(L_new, tf.where(diagonal > 0.0, diagonal, tf.ones_like(diagonal)))
    return tf.linalg.triangular_solve(L_new, rest, lower=False, adjoint=True)


def _dense_pivots(
    S: tf.Tensor, rounding: tf.Tensor, *, max_pivots: tf.Tensor, min_variance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the pivots of S [J, C, C] that are no smaller than `min_variance`, and L there."""

    def remaining(S: tf.Tensor) -> tf.Tensor:
        variance = tf.linalg.diag_part(S)
        return tf.where(variance > rounding, variance, tf.zeros_like(variance))  # [J, C]

    def unfinished(i: tf.Tensor, S: tf.Tensor, variance: tf.Tensor, *_: Any) -> tf.Tensor:
        largest = tf.reduce_max(tf.reduce_sum(variance, axis=0))
        return (i < max_pivots) & (largest > 0.0) & (largest >= min_variance)

    def step(
        i: tf.Tensor,
        S: tf.Tensor,
        variance: tf.Tensor,
        pivots: tf.TensorArray,
        rows: tf.TensorArray,
    ) -> tuple[Any, ...]:
        p = tf.argmax(tf.reduce_sum(variance, axis=0), output_type=tf.int32)
        row = tf.math.divide_no_nan(S[:, p], tf.sqrt(variance[:, p])[:, None])  # [J, C]
        S -= row[:, :, None] * row[:, None, :]
        return i + 1, S, remaining(S), pivots.write(i, p), rows.write(i, row)

    _, _, _, pivots, rows = tf.while_loop(
        unfinished,
        step,
        (
            0,
            S,
            remaining(S),
            tf.TensorArray(tf.int32, size=0, dynamic_size=True),
            tf.TensorArray(S.dtype, size=0, dynamic_size=True),
        ),
    )
    picks = pivots.stack()  # [B]
    L = tf.transpose(rows.stack(), [1, 0, 2])  # [J, B, C]
    return picks, tf.gather(L, picks, axis=-1)

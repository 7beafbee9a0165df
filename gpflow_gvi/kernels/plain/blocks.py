"""Covariance matrices, and derivatives of sums over them, by blocks of rows that fit in a cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gpflow.base import AnyNDArray

from .base import Plain

BLOCK_SIZE = 65_536
"""About the number of entries of a block."""


def _blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    N, C = shape
    B = max(8, BLOCK_SIZE // max(C, 1))
    return (slice(i, min(i + B, N)) for i in range(0, N, B))


def covariance(covariances: Plain, out: AnyNDArray) -> AnyNDArray:
    """Write k(X, X2) into an array: [N, N2]."""
    for rows in _blocks(out.shape):
        covariances.covariance(rows, out[rows])
    return out


def lower_covariance(covariances: Plain, out: AnyNDArray) -> AnyNDArray:
    """Write the lower triangle of k(X, X) into an array: [N, N].

    What is above the diagonal is written where a block contains it, or left as it is.
    """
    for rows in _blocks(out.shape):
        before = slice(0, rows.stop)
        block: AnyNDArray = np.empty([rows.stop - rows.start, rows.stop], out.dtype)
        out[rows, before] = covariances.covariance(rows, block, before)
    return out


def gradient(covariances: Plain, G: AnyNDArray, *, lower: bool = False) -> list[AnyNDArray]:
    """Return the derivatives of Σ G ∘ k(X, X2) in the parameters.

    :param covariances: k(X, X2).
    :param G: [N, N2].
    :param lower: whether what is above the diagonal is taken as zero.
    """
    found: list[AnyNDArray] = []
    for rows in _blocks(G.shape):
        columns = slice(0, rows.stop if lower else G.shape[1])
        block = np.ascontiguousarray(G[rows, columns])
        if lower:
            block = np.tril(block, rows.start)
        parts = covariances.gradient(rows, block, columns)
        found = [a + b for a, b in zip(found, parts, strict=True)] if found else parts
    return found

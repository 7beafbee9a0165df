"""Covariance matrices, and derivatives of sums over them, by blocks of rows that fit in a cache."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from .base import Plain
from .dispatch import plain
from .parameters import Value, value_of

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


class PlainCovariances:
    """K_ZZ, K_ZX and the diagonal of K_XX, which sparse processes need.

    :param kernel: one of which `has_gradient` is true.
    :param Z: the inducing points, [M, D].
    :param X: [N, D].
    :param value: the values of parameters, if not those that they have.
    """

    def __init__(
        self, kernel: Kernel, Z: AnyNDArray, X: AnyNDArray, *, value: Value = value_of
    ) -> None:
        of_points, of_pairs = plain(kernel, Z, value=value), plain(kernel, Z, X, value=value)
        at_rows = plain(kernel, X, value=value)
        if of_points is None or of_pairs is None or at_rows is None:
            raise ValueError(f"{kernel} and rows of shape {X.shape} have no plain kernel.")
        self._of_points, self._of_pairs, self._at_rows = of_points, of_pairs, at_rows
        self.Kzz = covariance(self._of_points, np.empty([len(Z), len(Z)], X.dtype))
        self.Kzx = covariance(self._of_pairs, np.empty([len(Z), len(X)], X.dtype))
        self.k = self._at_rows.variance()

    def gradient(
        self, by_Kzz: AnyNDArray, by_Kzx: AnyNDArray, by_k: AnyNDArray
    ) -> list[tuple[Parameter, AnyNDArray]]:
        """Return the derivatives of a function, of which those by covariances are given.

        A parameter is there more than once; its derivatives are to be added up.
        """
        parameters = self._at_rows.parameters
        parts = [
            gradient(self._of_points, by_Kzz),
            gradient(self._of_pairs, by_Kzx),
            self._at_rows.variance_gradient(by_k),
        ]
        return [pair for part in parts for pair in zip(parameters, part, strict=True)]

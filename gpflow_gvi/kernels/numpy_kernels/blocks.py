"""Covariances block by block, so that all that is computed of a block stays in the cache."""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gpflow import Parameter
from gpflow.base import AnyNDArray

from .parameters import Value

BLOCK_SIZE = 65_536
"""About the number of entries of a block of a covariance: it fits in a processor's cache."""


class NumpyKernel(abc.ABC):
    """The covariances between rows of X and rows of X2, for values of the hyper-parameters."""

    names: tuple[str, ...] = ("variance",)
    """The attributes that are hyper-parameters, in the order of their derivatives."""

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        self.parameters: Sequence[Parameter] = [getattr(kernel, name) for name in self.names]
        self.values = [value(parameter).astype(X.dtype) for parameter in self.parameters]
        self.X, self.X2 = X[:, kernel.active_dims], X2[:, kernel.active_dims]

    def variance(self) -> AnyNDArray:
        """Return k(x, x) for the rows of X, [N]: of a stationary kernel, by its first parameter."""
        return np.full(len(self.X), np.sum(self.values[0]))

    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        """Return the derivatives of Σ g k(x, x) in the parameters, g [N]."""
        first, *others = self.values
        return [np.full_like(first, np.sum(g)), *map(np.zeros_like, others)]

    @abc.abstractmethod
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        """Return k(X[rows], X2[columns]), a new array: [B, C]."""

    @abc.abstractmethod
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        """Return the derivatives of Σ G ∘ k(X[rows], X2[columns]) in the parameters, G [B, C]."""

    def covariance(self, out: AnyNDArray | None = None, *, lower: bool = False) -> AnyNDArray:
        """Return k(X, X2): [N, N2].

        :param out: the array to write it into.
        :param lower: whether the lower triangle suffices; what is above may then be anything.
        """
        out = np.empty([len(self.X), len(self.X2)], self.X.dtype) if out is None else out
        for rows, columns in self._blocks(lower):
            out[rows, columns] = self.block(rows, columns)
        return out

    def gradient(self, G: AnyNDArray, *, lower: bool = False) -> list[AnyNDArray]:
        """Return the derivatives of Σ G ∘ k(X, X2) in the parameters, G [N, N2].

        :param lower: whether what is above the diagonal is zero.
        """
        parts = [self.block_gradient(*block, G[block]) for block in self._blocks(lower)]
        return [functools.reduce(operator.add, each) for each in zip(*parts, strict=True)]

    def _blocks(self, lower: bool) -> Iterator[tuple[slice, slice]]:
        N, C = len(self.X), len(self.X2)
        B = max(8, BLOCK_SIZE // max(C, 1))
        for i in range(0, N, B):
            end = min(i + B, N)
            yield slice(i, end), slice(0, end if lower else C)


def exponential(exponent: AnyNDArray) -> AnyNDArray:
    """Return the exponential, over its argument: of no number so small that it takes long."""
    return np.exp(np.maximum(exponent, -75.0, out=exponent), out=exponent)

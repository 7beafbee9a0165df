"""Stationary kernels, and sums and products of them, on arrays of NumPy.

It takes TensorFlow longer to start the operations of such a kernel than NumPy to compute a row of
k(X, X). Nothing here has a gradient.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Protocol

import gpflow.kernels
import numpy as np
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Product, Stationary, Sum

MAX_COLUMNS = 50
"""The number of columns above which copies of X are too large, and products take longest anyway."""


class Plain(Protocol):
    """The covariances between rows of X."""

    def variance(self) -> AnyNDArray:
        """Return k(x, x): [N]."""

    def covariance(self, rows: AnyNDArray | slice, out: AnyNDArray) -> AnyNDArray:
        """Write k(X[rows], X) into an array, and return it: [B, N]."""

    def of_rows(self, rows: AnyNDArray) -> Plain:
        """Return the covariances between some of the rows."""


def plain(kernel: Kernel, X: AnyNDArray) -> Plain | None:
    """Return the covariances between rows of X: [N, D]; None if the kernel is of another kind."""
    if X.ndim != 2 or X.shape[1] > MAX_COLUMNS:
        return None
    if type(kernel) in (Sum, Product):
        parts = [plain(part, X) for part in kernel.kernels]
        combine = operator.iadd if type(kernel) is Sum else operator.imul
        return None if None in parts else _Combination(combine, parts)  # type: ignore[arg-type]
    return _stationary(kernel, X) if type(kernel) in _OF_SQUARES else None


@dataclasses.dataclass(frozen=True)
class _Combination:
    combine: Callable[..., AnyNDArray]
    parts: list[Plain]

    def variance(self) -> AnyNDArray:
        return functools.reduce(self.combine, [part.variance() for part in self.parts])

    def covariance(self, rows: AnyNDArray | slice, out: AnyNDArray) -> AnyNDArray:
        first, *others = self.parts
        found = [part.covariance(rows, np.empty_like(out)) for part in others]
        return functools.reduce(self.combine, found, first.covariance(rows, out))

    def of_rows(self, rows: AnyNDArray) -> Plain:
        return _Combination(self.combine, [part.of_rows(rows) for part in self.parts])


@dataclasses.dataclass(frozen=True)
class _Stationary:
    left: AnyNDArray
    """[N, D + 2]; the product of a row of it and a column of the next is |x - x'|² / ℓ²."""
    right: AnyNDArray
    """[D + 2, N]."""
    scale: AnyNDArray
    of_squares: Callable[[AnyNDArray], AnyNDArray]

    def variance(self) -> AnyNDArray:
        return np.full(len(self.left), self.scale)

    def covariance(self, rows: AnyNDArray | slice, out: AnyNDArray) -> AnyNDArray:
        squares = np.matmul(self.left[rows], self.right, out=out)
        found = self.of_squares(np.maximum(squares, 0.0, out=squares))
        return np.multiply(found, self.scale, out=out)

    def of_rows(self, rows: AnyNDArray) -> Plain:
        return dataclasses.replace(self, left=self.left[rows], right=self.right[:, rows])


def _stationary(kernel: Stationary, X: AnyNDArray) -> Plain:
    X = X[:, kernel.active_dims] / _value(kernel.lengthscales).astype(X.dtype)
    ones, squares = np.ones((len(X), 1), X.dtype), np.square(X).sum(axis=1, keepdims=True)
    return _Stationary(
        np.concatenate([-2.0 * X, squares, ones], axis=1),
        np.concatenate([X.T, ones.T, squares.T]),
        _value(kernel.variance).astype(X.dtype),
        _OF_SQUARES[type(kernel)],
    )


def _exp(exponent: AnyNDArray) -> AnyNDArray:
    """Return the exponential, over its argument: of no number so small that it takes long."""
    return np.exp(np.maximum(exponent, -75.0, out=exponent), out=exponent)


def _matern32(squares: AnyNDArray) -> AnyNDArray:
    r = np.sqrt(3.0 * squares)
    return (1.0 + r) * _exp(-r)


def _matern52(squares: AnyNDArray) -> AnyNDArray:
    r = np.sqrt(5.0 * squares)
    return (1.0 + r + r * r / 3.0) * _exp(-r)


_OF_SQUARES: dict[type[Kernel], Callable[[AnyNDArray], AnyNDArray]] = {
    gpflow.kernels.SquaredExponential: lambda squares: _exp(np.multiply(squares, -0.5, squares)),
    gpflow.kernels.Exponential: lambda squares: _exp(-0.5 * np.sqrt(squares)),
    gpflow.kernels.Matern12: lambda squares: _exp(-np.sqrt(squares)),
    gpflow.kernels.Matern32: _matern32,
    gpflow.kernels.Matern52: _matern52,
}
"""The covariances of a variance of one, from |x - x'|² / ℓ², which may be overwritten."""

_SOFTPLUS = tfp.bijectors.Softplus()


def _value(parameter: Parameter) -> AnyNDArray:
    """Return the value of a parameter; of GPflow's usual ones without TensorFlow's operations."""
    transform = parameter.transform
    if transform == _SOFTPLUS:
        return np.logaddexp(0.0, parameter.unconstrained_variable.numpy())
    return parameter.numpy()

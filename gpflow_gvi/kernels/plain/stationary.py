"""Stationary kernels: v h(s) of s = Σ_d (x_d - x'_d)² / ℓ_d²."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import gpflow.kernels
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Stationary
from typing_extensions import override

from .base import EVERY, Plain, Rows, exponential
from .parameters import Value


class _Shape(NamedTuple):
    """h as a function of a multiple of s, which may be overwritten."""

    factor: float
    """The multiple."""
    value: Callable[[AnyNDArray], AnyNDArray]
    """h."""
    slope: Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]] | None
    """h and its derivative, which may be the same array; None if it has no slope at zero."""


class PlainStationary(Plain):
    """A stationary kernel.

    :param kernel: the kernel.
    :param X: [N, D].
    :param X2: [N2, D].
    :param value: the values of its parameters.
    """

    def __init__(self, kernel: Stationary, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        self.parameters = (kernel.variance, kernel.lengthscales)
        self._shape = SHAPES[type(kernel)]
        self._variance, self._lengthscales = (
            value(parameter).astype(X.dtype) for parameter in self.parameters
        )
        self._X, self._X2 = X, X2 = X / self._lengthscales, X2 / self._lengthscales
        # A row of `_left` times a column of `_right` is the multiple of s.
        squares, squares2 = (np.square(rows).sum(axis=1, keepdims=True) for rows in (X, X2))
        ones, self._ones2 = np.ones_like(squares), np.ones_like(squares2)
        self._left = self._shape.factor * np.concatenate([-2.0 * X, squares, ones], axis=1)
        self._right = np.concatenate([X2.T, self._ones2.T, squares2.T])

    @override
    def variance(self) -> AnyNDArray:
        return np.full(len(self._X), self._variance)

    @override
    def covariance(self, rows: Rows, out: AnyNDArray, columns: Rows = EVERY) -> AnyNDArray:
        multiple = np.matmul(self._left[rows], self._right[:, columns], out=out)
        return np.multiply(self._shape.value(multiple), self._variance, out=out)

    @override
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        """Return Σ G ∘ h in v, and with E = v G ∘ h'(s) -2 Σ E (x_d - x'_d)² / ℓ_d³ in ℓ_d."""
        multiple = np.matmul(self._left[rows], self._right[:, columns])
        shape, slope = self._shape.slope(multiple)  # type: ignore[misc]
        by_variance = None if shape is slope else np.einsum("bc,bc->", G, shape)
        E = np.multiply(G, slope, out=slope)
        X, X2 = self._X[rows], self._X2[columns]
        EX2, E1 = np.split(E @ np.hstack([X2, self._ones2[columns]]), [X.shape[1]], axis=1)
        squares = np.sum(np.square(X) * E1 - 2.0 * X * EX2, axis=0)
        squares += np.sum(E, axis=0) @ np.square(X2)  # Σ E (x_d - x'_d)² / ℓ_d², [D]
        factor = -2.0 * self._shape.factor * self._variance
        by_scales = factor * squares / self._lengthscales
        return [
            np.sum(E1) if by_variance is None else by_variance,
            by_scales if self._lengthscales.ndim else np.sum(by_scales),
        ]

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [np.sum(g), np.zeros_like(self._lengthscales)]


def _root(multiple: AnyNDArray) -> AnyNDArray:
    return np.sqrt(np.maximum(multiple, 0.0, out=multiple), out=multiple)


def _of_exponent(exponent: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    found = exponential(exponent)
    return found, found


def _matern32(squares: AnyNDArray) -> AnyNDArray:
    r = _root(squares)
    return (1.0 + r) * exponential(-r)


def _matern52(squares: AnyNDArray) -> AnyNDArray:
    r = _root(squares)
    return (1.0 + r + r * r / 3.0) * exponential(-r)


def _slope_of_matern32(squares: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    r = _root(squares)
    e = exponential(-r)
    return (1.0 + r) * e, -0.5 * e


def _slope_of_matern52(squares: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    r = _root(squares)
    e = exponential(-r)
    return (1.0 + r + r * r / 3.0) * e, (-1.0 / 6.0) * (1.0 + r) * e


SHAPES: dict[type[Kernel], _Shape] = {
    gpflow.kernels.SquaredExponential: _Shape(-0.5, exponential, _of_exponent),
    gpflow.kernels.Exponential: _Shape(0.25, lambda s: exponential(-_root(s)), None),
    gpflow.kernels.Matern12: _Shape(1.0, lambda s: exponential(-_root(s)), None),
    gpflow.kernels.Matern32: _Shape(3.0, _matern32, _slope_of_matern32),
    gpflow.kernels.Matern52: _Shape(5.0, _matern52, _slope_of_matern52),
}

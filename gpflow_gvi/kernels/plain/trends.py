"""Kernels of trends: of constants, of lines, and of functions whose slope changes."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Constant, Linear
from typing_extensions import override

from ..integrated_brownian_motion import IntegratedBrownianMotion
from .base import EVERY, Plain, Rows
from .parameters import Value


class PlainConstant(Plain):
    """A constant v.

    :param kernel: the kernel.
    :param X: [N, D].
    :param X2: [N2, D].
    :param value: the values of its parameters.
    """

    def __init__(self, kernel: Constant, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        self.parameters = (kernel.variance,)
        self._variance = value(kernel.variance).astype(X.dtype)
        self._num_rows = len(X)

    @override
    def variance(self) -> AnyNDArray:
        return np.full(self._num_rows, self._variance)

    @override
    def covariance(self, rows: Rows, out: AnyNDArray, columns: Rows = EVERY) -> AnyNDArray:
        out[...] = self._variance
        return out

    @override
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        return [np.sum(G)]

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [np.sum(g)]


class PlainLinear(Plain):
    """Σ_d v_d x_d x'_d.

    :param kernel: the kernel.
    :param X: [N, D].
    :param X2: [N2, D].
    :param value: the values of its parameters.
    """

    def __init__(self, kernel: Linear, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        self.parameters = (kernel.variance,)
        self._variance = value(kernel.variance).astype(X.dtype)
        self._X, self._X2 = X, X2

    @override
    def variance(self) -> AnyNDArray:
        return (self._variance * np.square(self._X)).sum(axis=1)

    @override
    def covariance(self, rows: Rows, out: AnyNDArray, columns: Rows = EVERY) -> AnyNDArray:
        return np.matmul(self._variance * self._X[rows], self._X2[columns].T, out=out)

    @override
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        return [self._of_variance(np.sum(self._X[rows] * (G @ self._X2[columns]), axis=0))]

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [self._of_variance(g @ np.square(self._X))]

    def _of_variance(self, of_features: AnyNDArray) -> AnyNDArray:
        return of_features if self._variance.ndim else np.sum(of_features)


class PlainBrownianMotion(Plain):
    """v (|x - x'|³ - |x|³ - |x'|³ + 3 x x' (|x| + |x'|)) / 12.

    :param kernel: the kernel.
    :param X: [N, 1].
    :param X2: [N2, 1].
    :param value: the values of its parameters.
    """

    def __init__(
        self, kernel: IntegratedBrownianMotion, X: AnyNDArray, X2: AnyNDArray, value: Value
    ) -> None:
        self.parameters = (kernel.variance,)
        self._variance = value(kernel.variance).astype(X.dtype)
        self._X, self._X2 = X, X2

    @override
    def variance(self) -> AnyNDArray:
        return self._variance * self._thirds()

    def _thirds(self) -> AnyNDArray:
        return np.abs(self._X[:, 0]) ** 3 / 3.0

    @override
    def covariance(self, rows: Rows, out: AnyNDArray, columns: Rows = EVERY) -> AnyNDArray:
        return np.multiply(self._variance, self._of_pairs(rows, columns), out=out)

    def _of_pairs(self, rows: Rows, columns: Rows) -> AnyNDArray:
        s, t = self._X[rows], self._X2[columns].T
        a, b = np.abs(s), np.abs(t)
        r = np.abs(s - t)
        return (r * r * r - a**3 - b**3 + 3.0 * s * t * (a + b)) / 12.0

    @override
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        return [np.einsum("bc,bc->", G, self._of_pairs(rows, columns))]

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [g @ self._thirds()]

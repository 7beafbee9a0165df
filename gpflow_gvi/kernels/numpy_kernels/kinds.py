"""Kernels on arrays of NumPy: of trends, smooth and quasi-periodic functions, sums and products."""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gpflow.kernels
import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from typing_extensions import override

from ..feature_map import LogInputs
from ..integrated_brownian_motion import IntegratedBrownianMotion
from ..spectral_mixture import AdditiveSpectralMixture
from .blocks import NumpyKernel, exponential
from .mixtures import NumpySpectralMixture
from .parameters import Value, is_known, value_of


def numpy_kernel(
    kernel: Kernel, X: AnyNDArray, X2: AnyNDArray | None = None, *, value: Value = value_of
) -> NumpyKernel:
    """Return the covariances between rows of X and of X2.

    :param kernel: one of which `has_numpy_kernel` is true.
    :param X: [N, D].
    :param X2: [N2, D], or X itself.
    :param value: the values of parameters, if not those that they have.
    """
    return _KINDS[type(kernel)](kernel, X, X if X2 is None else X2, value)


def has_numpy_kernel(kernel: Kernel, shape: Sequence[int]) -> bool:
    """Return True if NumPy evaluates the kernel, its derivatives and priors, instead of GPflow.

    :param shape: that of a row of X.
    """
    if len(shape) != 1 or type(kernel) not in _KINDS:
        return False
    if isinstance(kernel, gpflow.kernels.Combination):
        return all(has_numpy_kernel(part, shape) for part in kernel.kernels)
    if isinstance(kernel, LogInputs):
        return has_numpy_kernel(kernel.base_kernel, shape)
    return all(is_known(getattr(kernel, name)) for name in _KINDS[type(kernel)].names)


class NumpyConstant(NumpyKernel):
    """A constant v."""

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        return np.full([len(self.X[rows]), len(self.X2[columns])], self.values[0])

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        return [np.sum(G)]


class NumpyLinear(NumpyKernel):
    """Σ_d v_d x_d x'_d."""

    @override
    def variance(self) -> AnyNDArray:
        return (self.values[0] * np.square(self.X)).sum(axis=1)

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [_of_shape(g @ np.square(self.X), self.values[0])]

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        return (self.values[0] * self.X[rows]) @ self.X2[columns].T

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        by_column = np.sum(self.X[rows] * (G @ self.X2[columns]), axis=0)
        return [_of_shape(by_column, self.values[0])]


def _of_shape(by_column: AnyNDArray, value: AnyNDArray) -> AnyNDArray:
    """Return derivatives in the value of each column, or in one that they share."""
    return by_column if value.ndim else np.sum(by_column)


class NumpyIntegratedBrownianMotion(NumpyKernel):
    """v (|x - x'|³ - |x|³ - |x'|³ + 3 x x' (|x| + |x'|)) / 12, for a single feature."""

    @override
    def variance(self) -> AnyNDArray:
        return self.values[0] * np.abs(self.X[:, 0]) ** 3 / 3.0

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [g @ np.abs(self.X[:, 0]) ** 3 / 3.0]

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        return self.values[0] * self._of_pairs(rows, columns)

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        return [np.einsum("bc,bc->", G, self._of_pairs(rows, columns))]

    def _of_pairs(self, rows: slice, columns: slice) -> AnyNDArray:
        s, t = self.X[rows], self.X2[columns].T
        a, b = np.abs(s), np.abs(t)
        r = np.abs(s - t)
        return (r * r * r - a**3 - b**3 + 3.0 * s * t * (a + b)) / 12.0


_Shape = Callable[[AnyNDArray], tuple[AnyNDArray, AnyNDArray]]
"""From a multiple of s, which may be overwritten, to h and its derivative, maybe the same array."""


class NumpyStationary(NumpyKernel):
    """v h(s), s = Σ_d (x_d - x'_d)² / ℓ_d²."""

    names = "variance", "lengthscales"

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        super().__init__(kernel, X, X2, value)
        self._factor, self._shape = SHAPES[type(kernel)]
        self.X, self.X2 = (part / self.values[1] for part in (self.X, self.X2))
        # A row of `_left` times a column of `_right` is the multiple of s.
        squares, squares2 = (
            np.square(part).sum(axis=1, keepdims=True) for part in (self.X, self.X2)
        )
        ones, self._ones2 = np.ones_like(squares), np.ones_like(squares2)
        self._left = self._factor * np.hstack([-2.0 * self.X, squares, ones])
        self._right = np.concatenate([self.X2.T, self._ones2.T, squares2.T])

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        found, _ = self._shape(self._left[rows] @ self._right[:, columns])
        return np.multiply(found, self.values[0], out=found)

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        """Return Σ G ∘ h in v, and with E = v G ∘ h'(s) -2 Σ E (x_d - x'_d)² / ℓ_d³ in ℓ_d."""
        shape, slope = self._shape(self._left[rows] @ self._right[:, columns])
        by_variance = None if shape is slope else np.einsum("bc,bc->", G, shape)
        E = np.multiply(G, slope, out=slope)
        X, X2 = self.X[rows], self.X2[columns]
        EX2, E1 = np.split(E @ np.hstack([X2, self._ones2[columns]]), [X.shape[1]], axis=1)
        squares = np.sum(np.square(X) * E1 - 2.0 * X * EX2, axis=0)
        squares += np.sum(E, axis=0) @ np.square(X2)  # Σ E (x_d - x'_d)² / ℓ_d², [D]
        variance, lengthscales = self.values
        by_scales = -2.0 * self._factor * variance * squares / lengthscales
        return [
            np.sum(E1) if by_variance is None else by_variance,
            _of_shape(by_scales, lengthscales),
        ]


def _root(multiple: AnyNDArray) -> AnyNDArray:
    return np.sqrt(np.maximum(multiple, 0.0, out=multiple), out=multiple)


def _squared_exponential(exponent: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    found = exponential(exponent)
    return found, found


def _matern32(squares: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    r = _root(squares)
    e = exponential(-r)
    return (1.0 + r) * e, -0.5 * e


def _matern52(squares: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    r = _root(squares)
    e = exponential(-r)
    return (1.0 + r + r * r / 3.0) * e, (-1.0 / 6.0) * (1.0 + r) * e


SHAPES: dict[type[Kernel], tuple[float, _Shape]] = {
    gpflow.kernels.SquaredExponential: (-0.5, _squared_exponential),
    gpflow.kernels.Matern32: (3.0, _matern32),
    gpflow.kernels.Matern52: (5.0, _matern52),
}
"""h as a function of a multiple of s, and the multiple."""


class NumpyCombination(NumpyKernel):
    """A sum or a product of kernels."""

    combine: Callable[..., AnyNDArray]

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        self.X, self.X2 = X, X2
        self.parts = [_KINDS[type(part)](part, X, X2, value) for part in kernel.kernels]
        self.parameters = [each for part in self.parts for each in part.parameters]

    @abc.abstractmethod
    def _weights(
        self, G: AnyNDArray, of_part: Callable[[NumpyKernel], AnyNDArray]
    ) -> Iterable[AnyNDArray]:
        """Return W for each part, so that derivatives of Σ G ∘ k are those of Σ W ∘ part."""

    @override
    def variance(self) -> AnyNDArray:
        return functools.reduce(self.combine, [part.variance() for part in self.parts])

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        pairs = zip(self.parts, self._weights(g, lambda part: part.variance()), strict=True)
        return [each for part, weights in pairs for each in part.variance_gradient(weights)]

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        return functools.reduce(self.combine, (part.block(rows, columns) for part in self.parts))

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        weights = self._weights(G, lambda part: part.block(rows, columns))
        pairs = zip(self.parts, weights, strict=True)
        return [each for part, own in pairs for each in part.block_gradient(rows, columns, own)]


class NumpySum(NumpyCombination):
    """A sum of kernels."""

    combine = staticmethod(operator.iadd)

    @override
    def _weights(self, G: AnyNDArray, of_part: Any) -> Iterable[AnyNDArray]:
        return [G] * len(self.parts)


class NumpyProduct(NumpyCombination):
    """A product of kernels, whose derivatives are those of a part times all others."""

    combine = staticmethod(operator.imul)

    @override
    def _weights(self, G: AnyNDArray, of_part: Any) -> Iterable[AnyNDArray]:
        factors = [of_part(part) for part in self.parts]
        for i in range(len(factors)):
            yield functools.reduce(operator.mul, [*factors[:i], *factors[i + 1 :]], G)


def _of_logarithms(kernel: LogInputs, X: AnyNDArray, X2: AnyNDArray, value: Value) -> NumpyKernel:
    features = kernel.numpy_features(X)
    others = features if X2 is X else kernel.numpy_features(X2)
    return numpy_kernel(kernel.base_kernel, features, others, value=value)


_KINDS: dict[type[Kernel], Any] = {
    **dict.fromkeys(SHAPES, NumpyStationary),
    AdditiveSpectralMixture: NumpySpectralMixture,
    IntegratedBrownianMotion: NumpyIntegratedBrownianMotion,
    gpflow.kernels.Constant: NumpyConstant,
    gpflow.kernels.Linear: NumpyLinear,
    LogInputs: _of_logarithms,
    gpflow.kernels.Product: NumpyProduct,
    gpflow.kernels.Sum: NumpySum,
}

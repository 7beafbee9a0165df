"""Kernels on arrays of NumPy, with the derivatives of their hyper-parameters in closed form.

It takes TensorFlow longer to start the operations of such a kernel than NumPy to compute a row of
k(X, X), and longer to trace them than to fit hyper-parameters to some hundred rows. These are the
kernels of the recipe, with sums and products of them; GPflow evaluates all others. Covariances are
computed block by block, so that all that is computed of a block stays in the cache.
"""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import gpflow.kernels
import numpy as np
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from typing_extensions import override

from .feature_map import LogInputs
from .integrated_brownian_motion import IntegratedBrownianMotion
from .numpy_parameters import THEIR_OWN, ValuesById, is_known, value_of
from .spectral_mixture import AdditiveSpectralMixture

BLOCK_SIZE = 65_536
"""About the number of entries of a block of a covariance: it fits in a processor's cache."""


def numpy_kernel(
    kernel: Kernel, X: AnyNDArray, X2: AnyNDArray | None = None, *, values: ValuesById = THEIR_OWN
) -> NumpyKernel:
    """Return the covariances between rows of X and of X2.

    :param kernel: one of which `has_numpy_kernel` is true.
    :param X: [N, D].
    :param X2: [N2, D], or X itself.
    """
    return _KINDS[type(kernel)](kernel, X, X if X2 is None else X2, values)


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


class NumpyKernel(abc.ABC):
    """The covariances between rows of X and rows of X2, for values of the hyper-parameters."""

    names: tuple[str, ...] = ("variance",)
    """The attributes that are hyper-parameters, in the order of their derivatives."""

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, values: ValuesById) -> None:
        self.parameters: Sequence[Parameter] = [getattr(kernel, name) for name in self.names]
        self.values = [
            (values[id(each)] if id(each) in values else value_of(each)).astype(X.dtype)
            for each in self.parameters
        ]
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
            yield slice(i, i + B), slice(0, min(i + B, N) if lower else C)


def _exponential(exponent: AnyNDArray) -> AnyNDArray:
    """Return the exponential, over its argument: of no number so small that it takes long."""
    return np.exp(np.maximum(exponent, -75.0, out=exponent), out=exponent)


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

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, values: ValuesById) -> None:
        super().__init__(kernel, X, X2, values)
        self._factor, self._shape = _SHAPES[type(kernel)]
        self.X, self.X2 = (part / self.values[1] for part in (self.X, self.X2))
        # A row of `_left` times a column of `_right` is the multiple of s.
        squares, squares2 = (np.sum(part**2, axis=1, keepdims=True) for part in (self.X, self.X2))
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


def _squared_exponential(exponent: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    found = _exponential(exponent)
    return found, found


def _matern32(squares: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    r = np.sqrt(np.maximum(squares, 0.0))
    e = _exponential(-r)
    return (1.0 + r) * e, -0.5 * e


def _matern52(squares: AnyNDArray) -> tuple[AnyNDArray, AnyNDArray]:
    r = np.sqrt(np.maximum(squares, 0.0))
    e = _exponential(-r)
    return (1.0 + r + r * r / 3.0) * e, (-1.0 / 6.0) * (1.0 + r) * e


_SHAPES: dict[type[Kernel], tuple[float, _Shape]] = {
    gpflow.kernels.SquaredExponential: (-0.5, _squared_exponential),
    gpflow.kernels.Matern32: (3.0, _matern32),
    gpflow.kernels.Matern52: (5.0, _matern52),
}
"""h as a function of a multiple of s, and the multiple."""


class NumpySpectralMixture(NumpyKernel):
    """Σ_c v exp(-½ r² / ℓ²) cos(2πf r), r = x - x', over the components c of single features."""

    names = "variances", "lengthscales", "frequencies"

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, values: ValuesById) -> None:
        super().__init__(kernel, X, X2, values)
        # For each component the exponent is a product of rows of three numbers, and the wave one of
        # rows of two.
        Q = len(self.values[0])
        x, x2 = (np.tile(rows, Q).T for rows in (self.X, self.X2))  # [Q D, N]
        v, scale, f = (part.reshape(-1, 1) for part in self.values)  # [Q D, 1]
        a, a2, angle, angle2 = x / scale, x2 / scale, 2.0 * np.pi * f * x, 2.0 * np.pi * f * x2
        one, one2, cos, sin = np.ones_like(a), np.ones_like(a2), np.cos(angle2), np.sin(angle2)
        self._left = np.stack([a, -0.5 * a * a, one], axis=-1)  # [Q D, N, 3]
        self._right = np.stack([a2, one2, -0.5 * a2 * a2], axis=1)  # [Q D, 3, N2]
        self._left_waves = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        self._right_waves = np.stack([v * cos, v * sin], axis=1)
        powers = [cos, sin, x2 * cos, x2 * sin, x2 * x2 * cos, x2 * x2 * sin]
        self._powers = np.stack(powers, axis=-1)  # [Q D, N2, 6]
        self._x = x

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        components = range(len(self._left))
        return functools.reduce(operator.iadd, (self._pairs(c, rows, columns) for c in components))

    def _pairs(self, c: int, rows: slice, columns: slice, *, waves: bool = True) -> AnyNDArray:
        """Return a component, or with no waves its exp(-½ r² / ℓ²), a new array: [B, C]."""
        if (table := self._tables[c]) is not None:
            exponentials, covariances, at = table
            return (covariances if waves else exponentials)[:, columns][at[rows]]
        E = self._exponentials(c, rows, columns)
        return np.multiply(E, self._waves(c, rows, columns), out=E) if waves else E

    @functools.cached_property
    def _tables(self) -> list[tuple[AnyNDArray, AnyNDArray, AnyNDArray] | None]:
        """exp(-½ r² / ℓ²) and components, [U, N2], and the value of each row, [N].

        They are of the distinct values of a feature where half of them repeat, as exponentials take
        longest: first of the fewest values, and all together with the memory of a few matrices.
        """
        x, N = self._x, self._x.shape[1]
        distinct = 1 + np.count_nonzero(np.diff(np.sort(x, axis=1), axis=1), axis=1)  # [Q D]
        order = np.argsort(distinct)
        kept = (np.cumsum(distinct[order]) <= 2 * N) & (2 * distinct[order] <= N)
        found: list[Any] = [None] * len(x)
        for c in order[kept]:
            _, first, at = np.unique(x[c], return_index=True, return_inverse=True)
            E = self._exponentials(c, first, slice(None))
            found[c] = E, E * self._waves(c, first, slice(None)), at
        return found

    def _exponentials(self, c: int, rows: Any, columns: slice) -> AnyNDArray:
        return _exponential(self._left[c, rows] @ self._right[c, :, columns])

    def _waves(self, c: int, rows: Any, columns: slice) -> AnyNDArray:
        return np.asarray(self._left_waves[c, rows] @ self._right_waves[c, :, columns])

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        """Return the derivatives, for each component with E = G ∘ exp(-½ r² / ℓ²) and a = 2πf x

            Σ E cos(a - a') in v,    v Σ E r² cos(a - a') / ℓ³ in ℓ,
            -2πv Σ E r sin(a - a') in f.

        All are sums over rows of E times columns that depend on x' alone.
        """
        sums = []
        for c in range(len(self._left)):
            E = self._pairs(c, rows, columns, waves=False)
            sums.append((np.multiply(E, G, out=E) @ self._powers[c, columns]).T)
        C, S, xC, xS, xxC, xxS = np.stack(sums, axis=1)  # [Q D, B]
        x, (cos, sin) = self._x[:, rows], np.moveaxis(self._left_waves[:, rows], -1, 0)
        waves = cos * C + sin * S  # Σ' E cos(a - a')
        curves = x * x * waves - 2.0 * x * (cos * xC + sin * xS) + cos * xxC + sin * xxS
        slopes = x * (sin * C - cos * S) - sin * xC + cos * xS
        by_v, by_scale, by_f = (
            part.sum(axis=1).reshape(self.values[0].shape) for part in (waves, curves, slopes)
        )
        v, scale, _ = self.values
        return [by_v, v * by_scale / scale**3, -2.0 * np.pi * v * by_f]


class NumpySum(NumpyKernel):
    """A sum of kernels."""

    combine: Callable[..., AnyNDArray] = staticmethod(operator.iadd)

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, values: ValuesById) -> None:
        self.X, self.X2 = X, X2
        self.parts = [numpy_kernel(part, X, X2, values=values) for part in kernel.kernels]
        self.parameters = [each for part in self.parts for each in part.parameters]

    def _weights(self, G: AnyNDArray, parts: Iterable[AnyNDArray]) -> Iterable[AnyNDArray]:
        """Return W for each part, so that derivatives of Σ G ∘ k are those of Σ W ∘ part."""
        return [G] * len(self.parts)

    @override
    def variance(self) -> AnyNDArray:
        return functools.reduce(self.combine, [part.variance() for part in self.parts])

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        weights = self._weights(g, (part.variance() for part in self.parts))
        pairs = zip(self.parts, weights, strict=True)
        return [each for part, own in pairs for each in part.variance_gradient(own)]

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        return functools.reduce(self.combine, (part.block(rows, columns) for part in self.parts))

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        weights = self._weights(G, (part.block(rows, columns) for part in self.parts))
        pairs = zip(self.parts, weights, strict=True)
        return [each for part, own in pairs for each in part.block_gradient(rows, columns, own)]


class NumpyProduct(NumpySum):
    """A product of kernels, whose derivatives are those of a part times all others."""

    combine = staticmethod(operator.imul)

    @override
    def _weights(self, G: AnyNDArray, parts: Iterable[AnyNDArray]) -> Iterable[AnyNDArray]:
        factors = list(parts)
        for i in range(len(factors)):
            yield functools.reduce(operator.mul, [*factors[:i], *factors[i + 1 :]], G)


def _of_logarithms(
    kernel: LogInputs, X: AnyNDArray, X2: AnyNDArray, values: ValuesById
) -> NumpyKernel:
    features = kernel.numpy_features(X)
    others = features if X2 is X else kernel.numpy_features(X2)
    return numpy_kernel(kernel.base_kernel, features, others, values=values)


_KINDS: dict[type[Kernel], Any] = {
    **dict.fromkeys(_SHAPES, NumpyStationary),
    AdditiveSpectralMixture: NumpySpectralMixture,
    IntegratedBrownianMotion: NumpyIntegratedBrownianMotion,
    gpflow.kernels.Constant: NumpyConstant,
    gpflow.kernels.Linear: NumpyLinear,
    LogInputs: _of_logarithms,
    gpflow.kernels.Product: NumpyProduct,
    gpflow.kernels.Sum: NumpySum,
}

"""Spectral mixtures of single features on arrays of NumPy."""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import numpy as np
from gpflow.base import AnyNDArray
from typing_extensions import override

from .blocks import NumpyKernel, exponential
from .parameters import Value


class _Table(NamedTuple):
    """A component at the distinct values of its feature: exponentials take longest."""

    covariances: AnyNDArray
    """[U, N2]."""
    exponentials: AnyNDArray
    """exp(-½ r² / ℓ²): [U, N2]."""
    at: AnyNDArray
    """The index of each row's value: [N]."""


class NumpySpectralMixture(NumpyKernel):
    """Σ_c v exp(-½ r² / ℓ²) cos(2πf r), r = x - x', over the components c of single features."""

    names = "variances", "lengthscales", "frequencies"

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        super().__init__(kernel, X, X2, value)
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
            of_values = table.covariances if waves else table.exponentials
            return of_values[:, columns][table.at[rows]]
        E = self._exponentials(c, rows, columns)
        return np.multiply(E, self._waves(c, rows, columns), out=E) if waves else E

    @functools.cached_property
    def _tables(self) -> list[_Table | None]:
        """The components, at the distinct values of their features where half of them repeat.

        Those of the fewest values come first, and all together take the memory of a few matrices.
        """
        x, N = self._x, self._x.shape[1]
        distinct = 1 + np.count_nonzero(np.diff(np.sort(x, axis=1), axis=1), axis=1)  # [Q D]
        order = np.argsort(distinct)
        kept = (np.cumsum(distinct[order]) <= 2 * N) & (2 * distinct[order] <= N)
        found: list[_Table | None] = [None] * len(x)
        for c in order[kept]:
            found[c] = self._table(c)
        return found

    def _table(self, c: int) -> _Table:
        _, first, at = np.unique(self._x[c], return_index=True, return_inverse=True)
        E = self._exponentials(c, first, slice(None))
        return _Table(E * self._waves(c, first, slice(None)), E, at)

    def _exponentials(self, c: int, rows: Any, columns: slice) -> AnyNDArray:
        return exponential(self._left[c, rows] @ self._right[c, :, columns])

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

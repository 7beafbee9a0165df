"""Mixtures of quasi-periodic functions of single features."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from typing_extensions import override

from ..spectral_mixture import AdditiveSpectralMixture
from .base import EVERY, Plain, Rows, exponential
from .parameters import Value


class PlainSpectralMixture(Plain):
    """Σ_c v exp(-½ r² / ℓ²) cos(2πf r), r = x - x', over the components c of single features.

    :param kernel: the kernel.
    :param X: [N, D].
    :param X2: [N2, D].
    :param value: the values of its parameters.
    """

    def __init__(
        self, kernel: AdditiveSpectralMixture, X: AnyNDArray, X2: AnyNDArray, value: Value
    ) -> None:
        self.parameters = (kernel.variances, kernel.lengthscales, kernel.frequencies)
        self._values = [value(part).astype(X.dtype) for part in self.parameters]  # [Q, D]
        self._X = X
        # For each component the exponent is a product of rows of three numbers, and the wave one of
        # rows of two.
        Q = len(self._values[0])
        x, x2 = (np.tile(rows, Q).T for rows in (X, X2))  # [Q D, N]
        v, scale, f = (part.reshape(-1, 1) for part in self._values)  # [Q D, 1]
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
    def variance(self) -> AnyNDArray:
        return np.full(len(self._X), np.sum(self._values[0]))

    @override
    def covariance(self, rows: Rows, out: AnyNDArray, columns: Rows = EVERY) -> AnyNDArray:
        waves, term = np.empty_like(out), np.empty_like(out)
        for c in range(len(self._left)):
            np.matmul(self._left_waves[c, rows], self._right_waves[c, :, columns], out=waves)
            self._exponential(c, rows, columns, term)
            if c:
                out += np.multiply(term, waves, out=waves)
            else:
                np.multiply(term, waves, out=out)
        return out

    def _exponential(self, c: int, rows: Rows, columns: Rows, out: AnyNDArray) -> AnyNDArray:
        """Return exp(-½ r² / ℓ²) of a component."""
        return exponential(np.matmul(self._left[c, rows], self._right[c, :, columns], out=out))

    @override
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        """Return the derivatives, for each component with E = G ∘ exp(-½ r² / ℓ²) and a = 2πf x

            Σ E cos(a - a') in v,    v Σ E r² cos(a - a') / ℓ³ in ℓ,
            -2πv Σ E r sin(a - a') in f.

        All are sums over rows of E times columns that depend on x' alone.
        """
        E = np.empty_like(G)
        sums = []
        for c in range(len(self._left)):
            np.multiply(self._exponential(c, rows, columns, E), G, out=E)
            sums.append((E @ self._powers[c, columns]).T)
        C, S, xC, xS, xxC, xxS = np.stack(sums, axis=1)  # [Q D, B]
        x, (cos, sin) = self._x[:, rows], np.moveaxis(self._left_waves[:, rows], -1, 0)
        waves = cos * C + sin * S  # Σ' E cos(a - a')
        curves = x * x * waves - 2.0 * x * (cos * xC + sin * xS) + cos * xxC + sin * xxS
        slopes = x * (sin * C - cos * S) - sin * xC + cos * xS
        by_v, by_scale, by_f = (
            part.sum(axis=1).reshape(self._values[0].shape) for part in (waves, curves, slopes)
        )
        v, scale, _ = self._values
        return [by_v, v * by_scale / scale**3, -2.0 * np.pi * v * by_f]

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        v, scale, f = self._values
        return [np.full_like(v, np.sum(g)), np.zeros_like(scale), np.zeros_like(f)]

"""From a kernel of GPflow to the same on arrays of NumPy, sums and products included."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Constant, Kernel, Linear, Product, Sum
from typing_extensions import override

from ..integrated_brownian_motion import IntegratedBrownianMotion
from ..spectral_mixture import AdditiveSpectralMixture
from .base import EVERY, Plain, Rows
from .mixture import PlainSpectralMixture
from .parameters import Value, is_plain, value_of
from .stationary import SHAPES, PlainStationary
from .trends import PlainBrownianMotion, PlainConstant, PlainLinear

MAX_COLUMNS = 100
"""The number of columns above which copies of X are too large, and products take longest anyway."""

_KINDS: dict[type[Kernel], Callable[..., Plain]] = {
    **dict.fromkeys(SHAPES, PlainStationary),
    AdditiveSpectralMixture: PlainSpectralMixture,
    Constant: PlainConstant,
    IntegratedBrownianMotion: PlainBrownianMotion,
    Linear: PlainLinear,
}


def plain(
    kernel: Kernel,
    X: AnyNDArray,
    X2: AnyNDArray | None = None,
    *,
    value: Value = value_of,
) -> Plain | None:
    """Return the covariances between rows of X and of X2; None if the kernel is of another kind.

    :param kernel: the kernel.
    :param X: [N, D].
    :param X2: [N2, D], or X itself.
    :param value: the values of parameters, if not those that they have.
    """
    if X.ndim != 2 or X.shape[1] > MAX_COLUMNS:
        return None
    X2 = X if X2 is None else X2
    if type(kernel) in (Sum, Product):
        parts = [plain(part, X, X2, value=value) for part in kernel.kernels]
        kind = PlainSum if type(kernel) is Sum else PlainProduct
        return None if None in parts else kind(parts)  # type: ignore[arg-type]
    if type(kernel) not in _KINDS:
        return None
    of_kernel = kernel.active_dims
    return _KINDS[type(kernel)](kernel, X[:, of_kernel], X2[:, of_kernel], value)


def has_gradient(kernel: Kernel, D: int) -> bool:
    """Return True if there are derivatives in the hyper-parameters, and their priors' densities.

    :param kernel: the kernel.
    :param D: the number of columns of X.
    """
    if D > MAX_COLUMNS:
        return False
    if type(kernel) in (Sum, Product):
        return all(has_gradient(part, D) for part in kernel.kernels)
    has_slope = type(kernel) not in SHAPES or SHAPES[type(kernel)].slope is not None
    return type(kernel) in _KINDS and has_slope and all(map(is_plain, kernel.parameters))


class _Combination(Plain):
    """A sum or a product of kernels."""

    combine: Callable[..., AnyNDArray]

    def __init__(self, parts: Sequence[Plain]) -> None:
        self.parts = parts
        self.parameters = [each for part in parts for each in part.parameters]

    @override
    def variance(self) -> AnyNDArray:
        return functools.reduce(self.combine, [part.variance() for part in self.parts])

    @override
    def covariance(self, rows: Rows, out: AnyNDArray, columns: Rows = EVERY) -> AnyNDArray:
        first, *others = self.parts
        found, other = first.covariance(rows, out, columns), np.empty_like(out)
        for part in others:
            found = self.combine(found, part.covariance(rows, other, columns))
        return found


class PlainSum(_Combination):
    """The sum of kernels."""

    combine = staticmethod(operator.iadd)

    @override
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        return [each for part in self.parts for each in part.gradient(rows, G, columns)]

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [each for part in self.parts for each in part.variance_gradient(g)]


class PlainProduct(_Combination):
    """The product of kernels."""

    combine = staticmethod(operator.imul)

    @override
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        values = [part.covariance(rows, np.empty_like(G), columns) for part in self.parts]
        return [
            each
            for i, part in enumerate(self.parts)
            for each in part.gradient(rows, _times(G, values[:i] + values[i + 1 :]), columns)
        ]

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        values = [part.variance() for part in self.parts]
        return [
            each
            for i, part in enumerate(self.parts)
            for each in part.variance_gradient(_times(g, values[:i] + values[i + 1 :]))
        ]


def _times(G: AnyNDArray, others: Sequence[AnyNDArray]) -> AnyNDArray:
    return functools.reduce(operator.mul, others, G)

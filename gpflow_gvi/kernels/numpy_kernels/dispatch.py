"""From a kernel of GPflow to the same on arrays of NumPy, sums and products included."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gpflow.kernels
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel
from typing_extensions import override

from ..integrated_brownian_motion import IntegratedBrownianMotion
from ..log_inputs import LogInputs
from ..spectral_mixture import AdditiveSpectralMixture
from .kinds import (
    SHAPES,
    NumpyConstant,
    NumpyIntegratedBrownianMotion,
    NumpyKernel,
    NumpyLinear,
    NumpySpectralMixture,
    NumpyStationary,
)
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


class NumpyCombination(NumpyKernel):
    """A sum or a product of kernels."""

    combine: Callable[..., AnyNDArray]

    def __init__(self, kernel: Any, X: AnyNDArray, X2: AnyNDArray, value: Value) -> None:
        self.X, self.X2 = X, X2
        self.parts = [_KINDS[type(part)](part, X, X2, value) for part in kernel.kernels]
        self.parameters = [each for part in self.parts for each in part.parameters]

    @override
    def variance(self) -> AnyNDArray:
        return functools.reduce(self.combine, [part.variance() for part in self.parts])

    @override
    def block(self, rows: slice, columns: slice) -> AnyNDArray:
        return functools.reduce(self.combine, (part.block(rows, columns) for part in self.parts))


class NumpySum(NumpyCombination):
    """A sum of kernels."""

    combine = staticmethod(operator.iadd)

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        return [each for part in self.parts for each in part.variance_gradient(g)]

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        parts = self.parts
        return [each for part in parts for each in part.block_gradient(rows, columns, G)]


class NumpyProduct(NumpyCombination):
    """A product of kernels."""

    combine = staticmethod(operator.imul)

    @override
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        factors = [part.variance() for part in self.parts]
        pairs = zip(self.parts, _without_each(g, factors), strict=True)
        return [each for part, others in pairs for each in part.variance_gradient(others)]

    @override
    def block_gradient(self, rows: slice, columns: slice, G: AnyNDArray) -> list[AnyNDArray]:
        factors = [part.block(rows, columns) for part in self.parts]
        pairs = zip(self.parts, _without_each(G, factors), strict=True)
        return [
            each for part, others in pairs for each in part.block_gradient(rows, columns, others)
        ]


def _without_each(G: AnyNDArray, factors: Sequence[AnyNDArray]) -> Iterator[AnyNDArray]:
    """Yield for each factor the product of G and all others."""
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

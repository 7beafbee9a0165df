"""What every kernel on arrays of NumPy has."""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence

import numpy as np
from gpflow import Parameter
from gpflow.base import AnyNDArray
from typing_extensions import Self, override

EVERY = slice(None)

Rows = AnyNDArray | slice
"""Numbers of rows."""


class Plain(abc.ABC):
    """The covariances between rows of X and rows of X2, for the parameters as they are."""

    parameters: Sequence[Parameter]
    """The hyper-parameters, in the order of their derivatives."""

    @abc.abstractmethod
    def variance(self) -> AnyNDArray:
        """Return k(x, x) for the rows of X: [N]."""

    @abc.abstractmethod
    def covariance(self, rows: Rows, out: AnyNDArray, columns: Rows = EVERY) -> AnyNDArray:
        """Write k(X[rows], X2[columns]) into an array, and return it: [B, C]."""

    @abc.abstractmethod
    def of_rows(self, rows: AnyNDArray) -> Plain:
        """Return the covariances between some of the rows, of X and of X2."""

    @abc.abstractmethod
    def gradient(self, rows: Rows, G: AnyNDArray, columns: Rows = EVERY) -> list[AnyNDArray]:
        """Return the derivatives of Σ G ∘ k(X[rows], X2[columns]) in the parameters.

        :param rows: B rows of X.
        :param G: [B, C].
        :param columns: C rows of X2.
        """

    @abc.abstractmethod
    def variance_gradient(self, g: AnyNDArray) -> list[AnyNDArray]:
        """Return the derivatives of Σ g k(x, x) in the parameters.

        :param g: [N].
        """


class PlainOfRows(Plain):
    """A kernel that keeps rows of X and of X2.

    :param X: [N, D].
    :param X2: [N2, D].
    """

    def __init__(self, X: AnyNDArray, X2: AnyNDArray) -> None:
        self._take(X, X2)

    def _take(self, X: AnyNDArray, X2: AnyNDArray) -> None:
        self._X, self._X2 = X, X2

    @override
    def of_rows(self, rows: AnyNDArray) -> Self:
        some = copy.copy(self)
        some._take(self._X[rows], self._X2[rows])
        return some


def exponential(exponent: AnyNDArray) -> AnyNDArray:
    """Return the exponential, over its argument: of no number so small that it takes long."""
    return np.exp(np.maximum(exponent, -75.0, out=exponent), out=exponent)

"""What every kernel on arrays of NumPy has."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np
from gpflow import Parameter
from gpflow.base import AnyNDArray

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


def exponential(exponent: AnyNDArray) -> AnyNDArray:
    """Return the exponential, over its argument: of no number so small that it takes long."""
    return np.exp(np.maximum(exponent, -75.0, out=exponent), out=exponent)

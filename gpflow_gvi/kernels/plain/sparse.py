"""The covariances that sparse processes need, and derivatives by them."""

from __future__ import annotations

import numpy as np
from gpflow import Parameter
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel

from .blocks import covariance, gradient
from .dispatch import plain
from .parameters import Value, value_of


class PlainCovariances:
    """K_ZZ, K_ZX and the diagonal of K_XX.

    :param kernel: one of which `has_gradient` is true.
    :param Z: the inducing points, [M, D].
    :param X: [N, D].
    :param value: the values of parameters, if not those that they have.
    """

    def __init__(
        self, kernel: Kernel, Z: AnyNDArray, X: AnyNDArray, *, value: Value = value_of
    ) -> None:
        of_points, of_pairs = plain(kernel, Z, value=value), plain(kernel, Z, X, value=value)
        at_rows = plain(kernel, X, value=value)
        if of_points is None or of_pairs is None or at_rows is None:
            raise ValueError(f"{kernel} and rows of shape {X.shape} have no plain kernel.")
        self._of_points, self._of_pairs, self._at_rows = of_points, of_pairs, at_rows
        self.Kzz = covariance(self._of_points, np.empty([len(Z), len(Z)], X.dtype))
        self.Kzx = covariance(self._of_pairs, np.empty([len(Z), len(X)], X.dtype))
        self.k = self._at_rows.variance()

    def gradient(
        self, by_Kzz: AnyNDArray, by_Kzx: AnyNDArray, by_k: AnyNDArray
    ) -> list[tuple[Parameter, AnyNDArray]]:
        """Return the derivatives of a function, of which those by covariances are given.

        A parameter is there more than once; its derivatives are to be added up.
        """
        parameters = self._at_rows.parameters
        parts = [
            gradient(self._of_points, by_Kzz),
            gradient(self._of_pairs, by_Kzx),
            self._at_rows.variance_gradient(by_k),
        ]
        return [pair for part in parts for pair in zip(parameters, part, strict=True)]

"""Measures on the inputs, against which a Gaussian process can be integrated.

Their coordinates are independent, so that the integral of a product over columns, as a squared
exponential kernel is one, is a product of integrals on the line.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float
from gpflow.kernels import Kernel
from typing_extensions import Self

from ..._core import checks


class Measure(abc.ABC):
    """A probability law of inputs x of D independent coordinates, given by two vectors."""

    names: ClassVar[tuple[str, str]]

    def __init__(self, *rows: TensorType) -> None:
        first, second = (tf.convert_to_tensor(row, dtype=default_float()) for row in rows)
        if first.shape.rank != 1 or first.shape != second.shape:
            raise ValueError(
                f"{self.names[0]} has shape {tuple(first.shape)} and {self.names[1]} has shape "
                f"{tuple(second.shape)}; both must be [D], a number for each column of X."
            )
        self.rows = (first, second)

    def of_columns(self, kernel: Kernel) -> Self:
        """Return the law of the active columns of a kernel."""
        return type(self)(*(kernel.slice(row[None], None)[0][0] for row in self.rows))

    @property
    @abc.abstractmethod
    def mean(self) -> tf.Tensor:
        """E x: [D]."""

    @abc.abstractmethod
    def bump(self, Z: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        """Return E exp(-½ (x_d - z_d)² / ℓ_d²) for the rows of Z: [M, D]."""

    @abc.abstractmethod
    def double_bump(self, lengthscales: tf.Tensor) -> tf.Tensor:
        """Return E exp(-½ (x_d - x'_d)² / ℓ_d²) for independent x and x': [D]."""

    @abc.abstractmethod
    def rule(self, num_nodes: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the nodes [n, D] and the weights [n] of a Gauss rule for each coordinate."""


class GaussianMeasure(Measure):
    """The normal law N(mean, diag(variance)).

    :param mean: [D].
    :param variance: [D], positive.
    """

    names = ("mean", "variance")

    def __init__(self, mean: TensorType, variance: TensorType) -> None:
        super().__init__(mean, variance)
        checks.positive("variance", variance)

    @property
    def mean(self) -> tf.Tensor:
        """E x: [D]."""
        return self.rows[0]

    def bump(self, Z: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        """O'Hagan (1991), "Bayes-Hermite quadrature": the bump is widened by the variance."""
        mean, variance = self.rows
        wider = tf.square(lengthscales) + variance
        return lengthscales / tf.sqrt(wider) * tf.exp(-0.5 * tf.square(Z - mean) / wider)

    def double_bump(self, lengthscales: tf.Tensor) -> tf.Tensor:
        """The bump at zero of x - x', whose variance is doubled."""
        return lengthscales / tf.sqrt(tf.square(lengthscales) + 2.0 * self.rows[1])

    def rule(self, num_nodes: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Gauss-Hermite."""
        nodes, weights = _tensors(np.polynomial.hermite_e.hermegauss(num_nodes))  # type: ignore[no-untyped-call]
        return self.rows[0] + tf.sqrt(self.rows[1]) * nodes[:, None], weights


class UniformMeasure(Measure):
    """The uniform law on a box.

    :param lower: the smallest value of each coordinate, [D].
    :param upper: the largest, [D].
    """

    names = ("lower", "upper")

    def __init__(self, lower: TensorType, upper: TensorType) -> None:
        super().__init__(lower, upper)
        checks.positive("upper - lower", self.rows[1] - self.rows[0])

    @property
    def mean(self) -> tf.Tensor:
        """E x: [D]."""
        return 0.5 * (self.rows[0] + self.rows[1])

    def bump(self, Z: tf.Tensor, lengthscales: tf.Tensor) -> tf.Tensor:
        """A difference of two normal distribution functions."""
        lower, upper = ((row - Z) / (np.sqrt(2.0) * lengthscales) for row in self.rows)
        area = np.sqrt(np.pi / 2.0) * lengthscales * (tf.math.erf(upper) - tf.math.erf(lower))
        return area / (self.rows[1] - self.rows[0])

    def double_bump(self, lengthscales: tf.Tensor) -> tf.Tensor:
        """∫ (1 - t) exp(-½ w² t²) 2 dt on [0, 1], with w the width of the box in lengthscales."""
        w = (self.rows[1] - self.rows[0]) / lengthscales
        area = np.sqrt(np.pi / 2.0) * w * tf.math.erf(w / np.sqrt(2.0))
        return 2.0 * (area + tf.math.expm1(-0.5 * tf.square(w))) / tf.square(w)

    def rule(self, num_nodes: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Gauss-Legendre."""
        nodes, weights = _tensors(np.polynomial.legendre.leggauss(num_nodes))  # type: ignore[no-untyped-call]
        return self.mean + 0.5 * (self.rows[1] - self.rows[0]) * nodes[:, None], weights


def _tensors(rule: tuple[npt.NDArray[Any], ...]) -> tuple[tf.Tensor, tf.Tensor]:
    nodes, weights = (tf.constant(part, dtype=default_float()) for part in rule)
    return nodes, weights / tf.reduce_sum(weights)

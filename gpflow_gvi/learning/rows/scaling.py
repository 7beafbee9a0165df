"""Original units and standard units: the linear maps between them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance, TensorType
from gpflow.config import default_float

from ..._core import feature_names
from ..._core.data import as_tensor, finite_rows

Array = np.ndarray[Any, Any]


class Scaling(NamedTuple):
    """x ↦ (x - shift) / scale, for each column."""

    shift: Array
    """The value that becomes zero: [D...]."""
    scale: Array
    """The difference that becomes one: [D...]."""
    names: tuple[str, ...] | None = None
    """The names that the columns had, if any: a table of other ones is refused."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.shift.shape

    @classmethod
    def of(cls, values: Array) -> Scaling:
        """Return the map to mean zero and standard deviation one; a constant column is shifted.

        NaN, which stands for what is missing, is left out.
        """
        values = np.asfortranarray(values)  # so that a column is summed whatever stands beside it
        # A power of two changes no digit, and squares of parts of the largest number are numbers.
        unit = np.ldexp(1.0, np.frexp(np.nanmax(np.abs(values), axis=0))[1]).astype(values.dtype)
        return cls.of_moments(np.nanmean(values, axis=0), np.nanstd(values / unit, axis=0) * unit)

    @classmethod
    def of_moments(cls, mean: Array, deviation: Array) -> Scaling:
        """Return the map for this mean and standard deviation."""
        # The deviation of a constant column is rounding, relative to its size.
        known = np.finfo(mean.dtype)
        rounding = np.maximum(10.0 * known.eps * np.abs(mean), known.tiny / known.eps)
        return cls(mean, np.where(deviation <= rounding, 1.0, deviation).astype(mean.dtype))

    @classmethod
    def none(cls, values: Array) -> Scaling:
        """Return the map that changes nothing."""
        shape, dtype = values.shape[1:], values.dtype
        return cls(np.zeros(shape, dtype), np.ones(shape, dtype))

    def standard(self, values: TensorType) -> tf.Tensor:
        """Return values of original units in standard units."""
        return self.scaled(self.validated(values))

    def validated(self, values: TensorType) -> tf.Tensor:
        """Return values of original units as a tensor of rows of the right shape."""
        if not isinstance(values, np.ndarray) and tf.is_symbolic_tensor(values):
            return tf.convert_to_tensor(values, dtype=default_float())
        feature_names.require("X", values, self.names)
        shape = self.shift.shape
        if getattr(values, "shape", None) == shape:
            raise ValueError(f"X (or Y) has shape {shape}, that of one row. Pass X[None].")
        values = finite_rows("X", values)
        given = tuple(values.shape)
        if len(given) > 2 and len(shape) == 1 and math.prod(given[1:]) == shape[0]:
            return tf.reshape(values, [-1, *shape])  # images as rows
        if given[-len(shape) :] != shape:
            raise ValueError(
                f"X (or Y) has shape {given}, but what was learned from has rows "
                f"of shape {shape}; pass the same columns."
            )
        return as_tensor(values)

    def scaled(self, values: tf.Tensor) -> tf.Tensor:
        """Return validated values in standard units."""
        return (values - self.shift) / self.scale

    def original(self, values: TensorType) -> tf.Tensor:
        """Return values of standard units in original units."""
        return values * self.scale + self.shift

    @property
    def linear(self) -> Scaling:
        """The linear part of the map: all of it."""
        return self

    def slope(self, standard: TensorType) -> tf.Tensor:
        """Return dz/dy, the same at all values z of standard units: [J]."""
        return tf.constant(1.0 / self.scale)

    def log_derivative(self, standard: TensorType) -> tf.Tensor:
        """Return Σ_j log dz/dy, the same at all values z of standard units: []."""
        return tf.constant(-np.sum(np.log(self.scale)), self.scale.dtype)

    def moments(self, mean: TensorType, variance: TensorType, df: Any = None) -> MeanAndVariance:
        """Return mean and variance in original units of what has these in standard units.

        :param df: the degrees of freedom of Student's t, on which a linear map does not depend.
        """
        return self.original(mean), variance * self.scale**2


def exactly_original(scaling: Scaling, X: Array) -> Array:
    """Return X in original units, without the rounding errors of the way there and back.

    Whole numbers and short decimals are what they were, as encoders of categories need.
    """
    digits = 12.0 - np.ceil(np.log10(np.abs(scaling.shift) + scaling.scale))
    power = 10.0 ** np.clip(digits, -300.0, 300.0)
    return np.asarray(np.round(np.asarray(scaling.original(X)) * power) / power)

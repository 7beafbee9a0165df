"""Original units and standard units: the linear maps between them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import TensorType
from gpflow.config import default_float

Array = np.ndarray[Any, Any]


class Scaling(NamedTuple):
    """x ↦ (x - shift) / scale, for each column."""

    shift: Array
    """What becomes zero: [D...]."""
    scale: Array
    """What becomes one: [D...]."""

    @classmethod
    def of(cls, values: Array) -> Scaling:
        """Return the map to mean zero and standard deviation one; a constant column is shifted."""
        shift = values.mean(axis=0)
        scale = values.std(axis=0)
        # The deviation of a constant column is rounding, relative to its size.
        constant = scale <= 10.0 * np.finfo(values.dtype).eps * np.abs(shift)
        return cls(shift, np.where(constant, 1.0, scale).astype(values.dtype))

    @classmethod
    def none(cls, values: Array) -> Scaling:
        """Return the map that changes nothing."""
        shape, dtype = values.shape[1:], values.dtype
        return cls(np.zeros(shape, dtype), np.ones(shape, dtype))

    def standard(self, values: TensorType) -> tf.Tensor:
        """Return values of original units in standard units."""
        return (tf.convert_to_tensor(values, dtype=default_float()) - self.shift) / self.scale

    def original(self, values: TensorType) -> tf.Tensor:
        """Return values of standard units in original units."""
        return values * self.scale + self.shift

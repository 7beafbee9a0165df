"""Values that belong to a model and that nobody trains, such as observations."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from .tensorflow_private import is_differentiated


def in_dtype(value: Any, dtype: tf.DType) -> tf.Tensor:
    """Return a value in a precision; `tf.cast` would take a number of Python through float32."""
    is_number = isinstance(value, int | float)
    return tf.constant(value, dtype) if is_number else tf.cast(value, dtype)


def constant(value: tf.Tensor) -> tf.Variable | tf.Tensor:
    """Return a value as a variable that is not trained.

    So it is among the weights of its model: it is saved with them, and another model of the same
    structure becomes equal to this one by assigning them, which needs no new graph. A value in a
    graph, where no variable can be made, or one that a gradient may be taken of, stays the tensor
    that it is.
    """
    if not tf.executing_eagerly() or is_differentiated():
        return value
    return tf.Variable(value, trainable=False)

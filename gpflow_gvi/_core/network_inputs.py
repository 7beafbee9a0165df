"""The type that a network takes numbers in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf


def type_of_inputs(network: Any, variables: Iterable[tf.Variable] = ()) -> tf.DType | None:
    """Return the type that X is cast to for a network, if not its own.

    It is that of the variables of the network, but whole numbers keep their values: layers of Keras
    cast their inputs by themselves, and not what they look up. bfloat16 has no word number 257, and
    float32 no key 2²⁴ + 1.
    """
    own = next((v.dtype for v in variables if v.dtype.is_floating), None)
    if not isinstance(network, keras.layers.Layer):
        return own
    declared = [tf.as_dtype(each.dtype) for each in getattr(network, "inputs", None) or ()]
    if declared and declared[0].is_integer:
        return declared[0]
    floats = [each for each in declared if each.is_floating] or [tf.float32]
    return own and max(own, floats[0], key=lambda each: each.size)

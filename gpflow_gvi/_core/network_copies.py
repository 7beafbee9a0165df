"""What a copy of a network shares with it: classes and functions of the user's."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

FUNCTIONS = "function", "mask", "_output_shape", "activation", "recurrent_activation"
"""The attributes of layers that may be functions."""


@contextlib.contextmanager
def own_objects(network: Any) -> Iterator[None]:
    """Within a block, let Keras copy layers and models with what it does not know.

    Functions have a name for as long: Keras copies nothing but the code of a lambda, which does not
    find the names that it uses.
    """
    is_keras = isinstance(network, keras.layers.Layer)
    parts = tf.train.TrackableView(network).descendants() if is_keras else []
    layers = [part for part in parts if isinstance(part, keras.layers.Layer)]
    kinds = {type(layer) for layer in layers}
    own: dict[str, Any] = {
        kind.__name__: kind for kind in kinds if kind.__module__.split(".")[0] != "keras"
    }
    found = {id(each): each for each in (vars(layer).get(n) for layer in layers for n in FUNCTIONS)}
    functions = [each for each in found.values() if _is_own(each)]
    names = [each.__name__ for each in functions]
    try:
        for i, each in enumerate(functions):
            own[f"function_{i}"] = each
            each.__name__ = f"function_{i}"
        with keras.saving.custom_object_scope(own):
            yield
    finally:
        for each, name in zip(functions, names, strict=True):
            each.__name__ = name


def _is_own(value: Any) -> bool:
    known = "keras.src.activations"
    return isinstance(value, types.FunctionType) and not value.__module__.startswith(known)

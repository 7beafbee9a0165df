"""The variables of networks."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from ..errors import short_repr


def keras_of(network: Any) -> Any:
    """Return the Keras that a layer or a model is of, keras or tf_keras; None for anything else.

    The module was imported before, as the class derives from its Layer.
    """
    bases = type(network).__mro__
    homes = (base.__module__.split(".")[0] for base in bases if base.__name__ == "Layer")
    return next((sys.modules[home] for home in homes if home in ("keras", "tf_keras")), None)


def is_keras(network: Any) -> bool:
    """Return True if this is a layer or a model of either Keras."""
    return keras_of(network) is not None


def require_keras_3(network: Any) -> None:
    """Raise if a layer or a model is of tf_keras, or computes with anything but TensorFlow."""
    keras = keras_of(network)
    if keras is None:
        return
    if keras.__name__ == "tf_keras":
        raise TypeError(
            f"network is {short_repr(network)} of tf_keras; it must be of Keras 3 (import keras). "
            "Or pass a function, lambda X: network(X), which is evaluated and not trained."
        )
    if keras.backend.backend() != "tensorflow":
        raise TypeError(
            f"network is a model of Keras with the backend {keras.backend.backend()!r}, and this "
            "package computes with TensorFlow. Set KERAS_BACKEND=tensorflow before keras is "
            "imported, and load the model again."
        )


def trainable_weights(network: Any) -> dict[str, tf.Variable]:
    """Return the trainable weights of a network of Keras by number and name, as `0.kernel`.

    The paths of Keras would not do: it numbers layers through (`dense_7`), puts the names of other
    models before those of layers that they share, and renames the variables of a copy when that is
    first called.
    """
    found = network.trainable_weights if is_keras(network) else ()
    return {f"{i}.{str(w.name).rpartition('/')[2]}": w.value for i, w in enumerate(found)}


def all_variables(network: Any) -> list[tf.Variable]:
    """Return all variables of a network, trained or not."""
    if is_keras(network):
        return [variable.value for variable in network.variables]
    return list(network.variables) if isinstance(network, tf.Module) else []

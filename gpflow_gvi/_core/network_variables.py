"""The variables of networks, found in both Keras and in any `tf.Module`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.utilities import parameter_dict

Weight: TypeAlias = "tf.Variable | Parameter"


def trainable_weights(network: Any, *, known: Collection[str] = ()) -> dict[str, Weight]:
    """Return the trainable weights of a network, by the places where they are found in it.

    A weight of a layer has the name by which it is reached from the network, `layers[0].kernel`.
    The paths of Keras would not do: it numbers layers through (`dense_7`), puts the names of other
    models before those of layers that they share, and renames the variables of a copy when that is
    first called.

    :param known: names that are taken for weights even where they are frozen.
    """
    layers = keras_layers(network)
    of_keras = {id(variable) for layer in layers for variable in _tensorflow(layer.variables)}
    weights: dict[int, tuple[str, Weight]] = {}
    if isinstance(network, tf.Module) and not is_keras(network):
        for path, leaf in parameter_dict(network).items():
            name = path.lstrip(".")
            is_weight = isinstance(leaf, Parameter) or leaf.trainable or name in known
            if id(leaf) not in of_keras and is_weight:
                weights.setdefault(id(leaf), (name, leaf))
    for place, layer in _places(network, layers):
        own = layer.trainable_weights
        for weight, variable in zip(own, _tensorflow(own), strict=True):
            last = str(weight.name).split(":")[0].rpartition("/")[2]
            weights.setdefault(id(variable), (f"{place}{last}", variable))
    result: dict[str, Weight] = {}
    for name, weight in weights.values():
        names = itertools.chain([name], (f"{name}:{i}" for i in itertools.count(1)))
        result[next(name for name in names if name not in result)] = weight
    return result


def _places(network: Any, layers: Sequence[Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Return the layers of a network and of the models inside it, and where they are found.

    A model comes after its layers, with those of its weights that are in none of them.
    """
    inside = getattr(network, "layers", None) if is_keras(network) else layers
    for i, layer in enumerate(inside if isinstance(inside, list | tuple) else ()):
        if layer is not network:
            yield from _places(layer, (), f"{place}layers[{i}].")
    if is_keras(network) and _has_weights(network):
        yield place, network


def keras_of(network: Any) -> Any:
    """Return the Keras that a layer or a model is of, keras or tf_keras; None for anything else.

    The module was imported before, as the class derives from its Layer.
    """
    bases = type(network).__mro__
    homes = (base.__module__.split(".")[0] for base in bases if base.__name__ == "Layer")
    return next((sys.modules[home] for home in homes if home in ("keras", "tf_keras")), None)


def require_tensorflow(network: Any) -> None:
    """Raise if a Keras model computes with anything but TensorFlow."""
    keras = keras_of(network)
    backend = "tensorflow" if keras is None else keras.backend.backend()
    if backend != "tensorflow":
        raise TypeError(
            f"network is a model of Keras with the backend {backend!r}, and this package computes "
            "with TensorFlow. Set KERAS_BACKEND=tensorflow before keras is imported, and load the "
            "model again."
        )


def is_keras(network: Any) -> bool:
    """Return True if this is a layer or a model of either Keras."""
    return keras_of(network) is not None


def keras_layers(network: Any, *, inside: bool = False) -> list[Any]:
    """Return the Keras layers of a network: itself, or those that a `tf.Module` holds.

    :param inside: return the layers of a Keras model as well.
    """
    if is_keras(network) and not inside:
        return [network] if _has_weights(network) else []
    if not (is_keras(network) or isinstance(network, tf.Module)):
        return []
    parts = tf.train.TrackableView(network).descendants()
    return [part for part in parts if is_keras(part) and _has_weights(part)]


def _has_weights(layer: Any) -> bool:
    """Return True if a layer's weights can be read; tf_keras raises before they are made."""
    try:
        return layer.weights is not None
    except ValueError:
        return False


def all_variables(network: Any) -> list[tf.Variable]:
    """Return all variables of a network, trained or not."""
    found = [v for layer in keras_layers(network) for v in _tensorflow(layer.variables)]
    if isinstance(network, tf.Module) and not is_keras(network):
        found += network.variables
    return found


def _tensorflow(variables: Iterable[Any]) -> list[tf.Variable]:
    """Return TensorFlow's variables in place of those of Keras 3, which wrap them."""
    return [v if isinstance(v, tf.Variable) else v.value for v in variables]

"""The variables of networks: found in both Keras and in any `tf.Module`, and named readably."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeAlias

import tensorflow as tf
from gpflow.base import Parameter
from gpflow.utilities import parameter_dict

Weight: TypeAlias = "tf.Variable | Parameter"


def trainable_weights(network: Any, *, known: Collection[str] = ()) -> dict[str, Weight]:
    """Return what is trained of a network, by readable names.

    The names depend on the network alone: Keras's automatic numbers (`dense_7`) start anew in each.

    :param known: names that are taken for weights even where they are frozen.
    """
    layers = keras_layers(network)
    of_keras = {id(variable) for layer in layers for variable in _tensorflow(layer.variables)}
    named: dict[int, tuple[str, Weight]] = {}
    if isinstance(network, tf.Module) and not is_keras(network):
        for path, leaf in parameter_dict(network).items():
            path = path.lstrip(".")
            is_weight = isinstance(leaf, Parameter) or leaf.trainable or path in known
            if id(leaf) not in of_keras and is_weight:
                named.setdefault(id(leaf), (path, leaf))
    for layer in layers:
        weights = layer.trainable_weights
        for weight, variable in zip(weights, _tensorflow(weights), strict=True):
            named.setdefault(id(variable), (_path(weight, network), variable))
    kinds = {_snake_case(type(layer).__name__) for layer in keras_layers(network, inside=True)}
    return _uniquely_named(named.values(), kinds)


def _uniquely_named(named: Iterable[tuple[str, Weight]], kinds: set[str]) -> dict[str, Weight]:
    """Return weights by name, where layers of the same name are told apart by numbers.

    :param kinds: names that Keras gives and numbers by itself; their numbers are dropped.
    """
    result: dict[str, Weight] = {}
    homes: dict[str, str] = {}  # from a layer's path to the name it is given

    def candidates(path: str) -> Iterator[str]:
        parts = (re.fullmatch(r"(.+?)_\d+", part) for part in path.split("/"))
        plain = "/".join(
            match[1] if match and match[1] in kinds else part
            for match, part in zip(parts, path.split("/"), strict=True)
        )
        return (plain if i == 0 else f"{plain}_{i}" for i in itertools.count())

    for path, weight in named:
        home, slash, leaf = path.rpartition("/") if "/" in path else (path, "", "")
        key = f"{homes[home]}{slash}{leaf}" if home in homes else None
        if key is None or key in result:
            taken = set(homes.values())
            homes[home] = next(name for name in candidates(home) if name not in taken)
            key = f"{homes[home]}{slash}{leaf}"
        result[key] = weight
    return result


def _path(weight: Any, network: Any) -> str:
    """Return the name of a Keras weight, without the name of the whole network."""
    path = str(getattr(weight, "path", weight.name)).split(":")[0]
    return path.removeprefix(f"{getattr(network, 'name', '')}/")


def keras_of(kind: type) -> str | None:
    """Return the Keras that a class derives its being a layer from, or None; importing neither."""
    homes = (base.__module__.split(".")[0] for base in kind.__mro__ if base.__name__ == "Layer")
    return next((home for home in homes if home in ("keras", "tf_keras")), None)


def is_keras(network: Any) -> bool:
    """Return whether this is a layer or a model of either Keras."""
    return keras_of(type(network)) is not None


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
    """Return whether a layer's weights can be asked for; tf_keras raises before they are made."""
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


def _snake_case(name: str) -> str:
    """Return the name that Keras gives to the first layer of a class."""
    name = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()

"""What the layers of a Keras model say: its features, what its outputs are, its preprocessing."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ..errors import short_repr
from .network_function import as_function, is_keras, require_keras_3

Array = np.ndarray[Any, Any]

PENULTIMATE = "penultimate"
LAYERS = "layers"
INPUTS = "inputs"

OPERATIONS = {
    name.replace("_", ""): name
    for name in (
        *("softmax", "log_softmax", "sigmoid", "hard_sigmoid", "tanh", "hard_tanh"),
        *("softplus", "softsign", "relu", "relu6", "elu"),
    )
} | {"exp": "exponential"}
"""The activations that layers and operations of `keras.ops` are, by their names in lower case."""

UNCHANGING = ("Dropout", "Identity", "Reshape", "Cast")
"""Layers and operations whose output has the numbers of their input."""


def output_activation(network: Any) -> str | None:
    """Return the name of the activation that a Keras model ends with, if it is known.

    Where a model has no graph, as a subclass, the layer that was made last need not be the one that
    is called last, nor the end of `call`; that it is a link is believed.
    """
    if not is_keras(network):
        return None
    last = _last_operation(network)
    if not getattr(last, "layers", None):
        return _activation_of(last)
    name = output_activation(last.layers[-1])
    return name if name in ("softmax", "sigmoid") else None


def are_probabilities(values: Array) -> bool:
    """Return True if rows of several columns add up to one, whatever layer made them."""
    if values.shape[-1] == 1 or not np.all((values >= 0.0) & (values <= 1.0)):
        return False
    return bool(np.all(np.abs(values.sum(axis=-1) - 1.0) < 1e-3))


def _activation_of(operation: Any) -> str | None:
    """Return the name of the activation that a layer or an operation has, or is."""
    activation: Any = getattr(operation, "activation", None)
    if hasattr(activation, "__name__"):
        name = activation.__name__.removesuffix("_v2")  # as TensorFlow names its own
        return OPERATIONS.get(name, name)
    kind = type(operation if activation is None else activation).__name__
    return OPERATIONS.get(kind.lower())


def _last_operation(network: Any) -> Any:
    """Return the layer that makes the output of a Keras model, or the operation of `keras.ops`.

    It is none that leaves numbers as they are, such as a cast to another precision. A model without
    a graph is returned itself.
    """
    operation, node, index = network, 0, 0
    while True:
        if outputs := getattr(operation, "outputs", None):
            tensor = outputs[min(index, len(outputs) - 1)]
        elif type(operation).__name__ in UNCHANGING or (
            type(operation).__name__ == "Activation" and _activation_of(operation) == "linear"
        ):
            tensor = operation._inbound_nodes[node].input_tensors[0]
        else:
            return operation
        operation, node, index = tensor._keras_history


def without_link(network: Any) -> Any:
    """Return a copy of a network without the softmax or sigmoid that it ends with, if any."""
    network = as_function(network).network
    if output_activation(network) not in ("softmax", "sigmoid"):
        return network
    network = copy.deepcopy(as_function(network)).network
    last = _last_operation(network)
    while layers := getattr(last, "layers", None):
        last = layers[-1]
    if not hasattr(last, "activation"):
        raise ValueError(
            f"mean is {short_repr(network)}, which ends with a layer {type(last).__name__}; it "
            "must return logits. Pass the same model without that layer."
        )
    last.activation = keras.activations.linear
    return network


def has_layer(network: Any, *names: str) -> bool:
    """Return True if a Keras model, or a model among its layers, has a layer of these classes."""
    layers = getattr(network, "layers", ()) if is_keras(network) else ()
    return any(type(each).__name__ in names or has_layer(each, *names) for each in layers)


def members(network: Any) -> list[Any]:
    """Return the networks of a list, of which an `ensemble` can be made, or the given one alone."""
    if not isinstance(network, list | tuple):
        require_keras_3(network)
        return [network]
    if not network:
        raise ValueError("network is an empty list; pass one network or more.")
    for i, each in enumerate(network, start=1):
        require_keras_3(each)
        if not _has_known_layers(each):
            raise TypeError(
                f"network is a list, whose network {i} is {short_repr(each)}. Pass Sequential or "
                "functional models of Keras that know the shape of their inputs."
            )
    return list(network)


def ensemble(networks: Sequence[Any], kind: str | None) -> Any:
    """Return a model of the average of the predictions of networks, or of their probabilities.

    It consists of the layers of the first, so that `with_features` finds these, and of the others.

    :param networks: `members`.
    :param kind: "logits", of which probabilities are made first; "probabilities"; or None.
    """
    first, *others = networks
    if not others:
        return first
    layers, dtype = keras.layers, keras.backend.result_type(first.outputs[0].dtype, "float32")
    # Copies of one model have the same name, which the layers of a model must not have; and what
    # networks share Keras would save in one of them alone.
    copies = [copy.deepcopy(as_function(each)).network for each in others]
    named = [keras.Sequential([each], name=f"network_{i}") for i, each in enumerate(copies, 2)]
    outputs = [first.outputs[0], *(each(first.inputs[0]) for each in named)]
    if kind == "logits":
        link = "sigmoid" if outputs[0].shape[-1] == 1 else "softmax"
        outputs = [layers.Activation(link, dtype=dtype)(each) for each in outputs]
    return keras.Model(first.inputs, layers.Average(dtype=dtype)(outputs))


def _has_known_layers(network: Any) -> bool:
    return is_keras(network) and bool(getattr(network, "inputs", None))


def named_layers(features: Any) -> list[str]:
    """Return those of features, one or several, that are of layers."""
    several = features if isinstance(features, list | tuple) else [features]
    return [each for each in several if isinstance(each, str) and each != INPUTS]


def require_layers(network: Any, features: Any) -> None:
    """Raise if there are features of layers, and these are not known."""
    names = named_layers(features)
    if names and not _has_known_layers(network):
        raise TypeError(
            f"features is {names[0]!r}, but network is {short_repr(network)}, whose layers are not "
            "known. Pass a Sequential or functional model of Keras that knows the shape of its "
            "inputs, or one whose call uses layers and keras.ops alone; or pass features="
            '"inputs", or a model of the features.'
        )


def with_features(
    network: Any, features: Sequence[str], of: Any
) -> tuple[Any, list[int], int | None]:
    """Return a model whose outputs are followed by features, and the number of columns of each.

    The last is which of them the last layer receives, if any. Features that a layer has at each
    pixel of an image, or at each step of a sequence, are averaged over these.

    :param network: a Sequential or functional model of Keras.
    :param features: each "penultimate", what the last layer with weights receives; the name of a
        layer; or "layers", `_resolutions`, and what the last layer receives.
    :param of: the model whose layers these are: the network, or the first of an `ensemble`.
    """
    require_layers(of, features)
    tensors: list[Any] = []
    last = None
    for name in features:
        if name == LAYERS:
            tensors += _resolutions(of)
        if name in (LAYERS, PENULTIMATE):
            last = len(tensors)
        tensors.append(_penultimate(of) if name in (LAYERS, PENULTIMATE) else _output_of(of, name))
    tensors = [_averaged(tensor) for tensor in tensors]
    outputs = network.outputs[0]
    dtype = keras.backend.result_type(outputs.dtype, "float32")  # no half precision
    joined = keras.layers.Concatenate(dtype=dtype)([outputs, *tensors])
    sizes = [int(tensor.shape[-1]) for tensor in tensors]
    return keras.Model(network.inputs, joined), sizes, last


def _averaged(tensor: Any) -> Any:
    """Return features [N, F] of a tensor [N, ..., F]."""
    rank = len(tensor.shape) - 2
    if rank == 0:
        return tensor
    if not 1 <= rank <= 3:
        raise ValueError(
            f"features have shape {tuple(tensor.shape)}; they must be [N, F], or have one to three "
            "axes between these, of an image or a sequence. Name a layer after a Flatten."
        )
    return getattr(keras.layers, f"GlobalAveragePooling{rank}D")()(tensor)


def _resolutions(network: Any) -> list[Any]:
    """Return the last output of layers with positions for each number of positions.

    The output of an embedding is among them, since later layers may not tell new words from others.
    Left out are layers before the first with weights, which prepare inputs; what is averaged over
    all positions, as the last layer mostly receives it; and layers of models within the network.
    """
    found: dict[tuple[int, ...], Any] = {}
    averaged: list[int] = []
    embedded: list[Any] = []
    has_weights = False
    for layer in network.layers:
        received = _tensors_of(network, layer, "input") if has_weights else []
        if type(layer).__name__.startswith("GlobalAveragePooling"):
            averaged += map(id, received)
        for tensor in received:
            if len(tensor.shape) > 2:
                found[tuple(tensor.shape[1:-1])] = tensor
        if type(layer).__name__ == "Embedding":
            embedded += _tensors_of(network, layer, "output")
        has_weights = has_weights or bool(layer.weights)
    last = [tensor for tensor in found.values() if id(tensor) not in averaged]
    words = [tensor for tensor in embedded if id(tensor) not in map(id, last)]
    return [*words, *last]


def _tensors_of(network: Any, layer: Any, name: str) -> list[Any]:
    """Return the tensors that a layer receives or returns in a network, which may be one of several
    that it is a layer of: where it is called last.

    :param name: "input" or "output".
    """
    graph = getattr(network, "_functional", None) or network
    nodes = getattr(graph, "_nodes_by_depth", {})
    for depth in sorted(nodes):
        for node in nodes[depth]:
            if node.operation is layer:
                return list(getattr(node, f"{name}_tensors"))
    return []


def _penultimate(network: Any) -> Any:
    """Return the tensor that the last layer with weights receives."""
    last = next((layer for layer in reversed(network.layers) if layer.weights), None)
    if last is None or getattr(last, "layers", None):
        raise ValueError(
            f"network {network.name!r} has no last layer with weights of its own, so that it has "
            'no penultimate features; name a layer, features="...", or pass a model of them.'
        )
    return (_tensors_of(network, last, "input") or [last.input])[0]


def _output_of(network: Any, name: str) -> Any:
    names = [layer.name for layer in network.layers]
    if name not in names:
        raise ValueError(
            f"features is {name!r}, but network {network.name!r} has no such layer; it has "
            f'{", ".join(names)}. Or pass "penultimate", "layers", "inputs", or a model of '
            "the features."
        )
    layer = network.get_layer(name)
    return (_tensors_of(network, layer, "output") or [layer.output])[0]

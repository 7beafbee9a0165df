"""What the layers of a Keras model say: its features, what its outputs are, its preprocessing."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from .errors import shown
from .network_variables import is_keras, keras_of

PENULTIMATE = "penultimate"


def output_activation(network: Any) -> str | None:
    """Return the name of the activation that a Keras model ends with, where its layers tell it."""
    layers = getattr(network, "layers", None) if is_keras(network) else None
    if layers:
        return output_activation(layers[-1])
    if not is_keras(network):
        return None
    if type(network).__name__ == "Softmax":
        return "softmax"
    return getattr(getattr(network, "activation", None), "__name__", None)


def rescales(network: Any) -> bool:
    """Return whether a Keras model scales its inputs itself."""
    return any(type(layer).__name__ in ("Normalization", "Rescaling") for layer in _layers(network))


def embeds(network: Any) -> bool:
    """Return whether inputs of a Keras model are numbers of words, which an embedding looks up."""
    return any(type(layer).__name__ == "Embedding" for layer in _layers(network))


def _layers(network: Any) -> Iterator[Any]:
    """Return the layers of a Keras model, and those of the models among them."""
    for layer in getattr(network, "layers", ()) if is_keras(network) else ():
        yield layer
        yield from _layers(layer)


def with_features(network: Any, features: Sequence[str]) -> tuple[Any, list[int]]:
    """Return a model whose outputs are followed by features, and the number of columns of each.

    It has the layers of the network, and is evaluated in one pass.

    :param network: a Sequential or functional model of Keras 3 or tf_keras.
    :param features: each "penultimate", what the last layer with weights receives, or the name of
        a layer.
    """
    if not is_keras(network) or not getattr(network, "inputs", None):
        raise TypeError(
            f"features is {features[0]!r}, but network is {shown(network)}, whose layers are not "
            "known. Pass a Sequential or functional model of Keras that knows the shape of its "
            'inputs, or features="inputs", or a model of the features.'
        )
    tensors = [
        _penultimate(network) if name == PENULTIMATE else _output_of(network, name)
        for name in features
    ]
    for name, tensor in zip(features, tensors, strict=True):
        if len(tensor.shape) != 2:
            raise ValueError(
                f"features {name!r} of network {network.name!r} have shape {tuple(tensor.shape)}; "
                "they must be [N, F], one row for each input. Name a layer after a pooling or a "
                f"Flatten: {', '.join(layer.name for layer in network.layers)}."
            )
    keras = importlib.import_module(str(keras_of(type(network))))
    outputs = network.outputs[0]
    joined = keras.layers.Concatenate(dtype=_widest(outputs.dtype))([outputs, *tensors])
    return keras.Model(network.inputs, joined), [int(tensor.shape[-1]) for tensor in tensors]


def _penultimate(network: Any) -> Any:
    """Return the tensor that the last layer with weights receives."""
    last = next((layer for layer in reversed(network.layers) if layer.weights), None)
    if last is None or getattr(last, "layers", None):
        raise ValueError(
            f"network {network.name!r} has no last layer with weights of its own, so that it has "
            'no penultimate features; name a layer, features="...", or pass a model of them.'
        )
    return last.input


def _output_of(network: Any, name: str) -> Any:
    names = [layer.name for layer in network.layers]
    if name not in names:
        raise ValueError(
            f"features is {name!r}, but network {network.name!r} has no such layer; it has "
            f'{", ".join(names)}. Or pass "penultimate", "inputs", or a model of the features.'
        )
    return network.get_layer(name).output


def _widest(dtype: Any) -> str:
    """Return the precision in which outputs and features are joined: no half precision."""
    name = str(getattr(dtype, "name", dtype))
    return "float32" if name in ("float16", "bfloat16") else name

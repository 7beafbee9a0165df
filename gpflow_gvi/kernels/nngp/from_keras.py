"""The reader of Keras models, of Keras 3 and of tf_keras; it imports neither.

What a layer is, is read from the name of its class and from its attributes, which are the same in
both libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .kernel import image_shape, output_shapes
from .layers import (
    Affine,
    AveragePooling2D,
    Conv2D,
    Dense,
    Erf,
    Flatten,
    GlobalAveragePooling2D,
    Layer,
    ReLU,
)

BIAS_VARIANCE = 0.1
"""The initial variance of the biases, in layers that have biases."""


def read(model: Any) -> tuple[list[Layer], tuple[int, ...] | None]:
    """Return the layers of a Keras model and the shape of one input, None where that is open."""
    _require_one_chain(model)
    layers: list[Layer] = []
    names: list[str] = []
    for position, layer in enumerate(model.layers):
        kind = type(layer).__name__
        name = f'Layer {position} "{layer.name}" ({kind})'
        try:
            if kind not in _READERS:
                known = ", ".join(sorted(_READERS))
                raise ValueError(f"it has no counterpart here. These have: {known}.")
            for attribute, wanted in _REQUIRED.get(kind, {}).items():
                given = getattr(layer, attribute)
                if given != wanted:
                    raise ValueError(
                        f"{attribute}={given!r} is not taken, only {attribute}={wanted!r}."
                    )
            parts = _READERS[kind](layer)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        layers += parts
        names += [name] * len(parts)
    if not layers:
        raise ValueError(
            "The model has no layers with weights: there is nothing to take a limit of."
        )
    _keep_the_variance(layers)
    shape = tuple(getattr(model, "input_shape", (None, None))[1:])
    output_shapes(layers, image_shape(layers[0], shape), names)
    return layers, None if None in shape else shape


def _require_one_chain(model: Any) -> None:
    """Raise unless each layer is called once, on what the one before it gives."""
    bases = {base.__name__ for base in type(model).__mro__}
    if not bases & {"Sequential", "Functional"}:
        raise TypeError(
            f"model is a {type(model).__name__}; it must be a Sequential or functional Keras "
            "model, whose layers can be listed in order."
        )
    if "Sequential" in bases:
        return
    for kind, ends in (("inputs", model.inputs), ("outputs", model.outputs)):
        if len(ends) != 1:
            raise ValueError(f"The model has {len(ends)} {kind}; a kernel takes one, giving one.")
    taken = [*(layer.input for layer in model.layers[1:]), model.outputs[0]]
    for position, (layer, given) in enumerate(zip(model.layers, taken, strict=True)):
        if given is not layer.output:
            raise ValueError(
                f'Layer {position} "{layer.name}" ({type(layer).__name__}): its output is not the '
                "one and only input of the next layer. The layers must form a single chain."
            )


def _keep_the_variance(layers: list[Layer]) -> None:
    """Start the weight variance at 2 in front of each ReLU, which halves the variance."""
    last = None
    for layer in layers:
        if isinstance(layer, Affine):
            last = layer
        elif isinstance(layer, ReLU) and last is not None:
            last.weight_variance.assign(2.0)


def _activation(layer: Any) -> list[Layer]:
    name = getattr(layer.activation, "__name__", repr(layer.activation))
    if name not in _ACTIVATIONS:
        raise ValueError(
            f"the activation {name!r} has no covariance in closed form here. Those that have: "
            f"{', '.join(sorted(_ACTIVATIONS))}. (Of a classifier, give what leads to its logits.)"
        )
    return _ACTIVATIONS[name]()


def _relu(layer: Any) -> list[Layer]:
    if layer.max_value is not None or float(layer.negative_slope) or float(layer.threshold):
        raise ValueError("only max(0, x) is taken: no max_value, negative_slope or threshold.")
    return [ReLU()]


def _dense(layer: Any) -> list[Layer]:
    return [Dense(1.0, BIAS_VARIANCE if layer.use_bias else 0.0), *_activation(layer)]


def _conv(layer: Any) -> list[Layer]:
    if layer.padding not in ("same", "valid"):
        raise ValueError(f'padding={layer.padding!r} is not taken; "same" and "valid" are.')
    convolution = Conv2D(
        layer.kernel_size,
        strides=layer.strides,
        padding=layer.padding,
        bias_variance=BIAS_VARIANCE if layer.use_bias else 0.0,
    )
    return [convolution, *_activation(layer)]


_ACTIVATIONS: dict[str, Callable[[], list[Layer]]] = {
    "relu": lambda: [ReLU()],
    "tanh": lambda: [Erf()],
    "erf": lambda: [Erf()],
    "linear": list,
}

_READERS: dict[str, Callable[[Any], list[Layer]]] = {
    "Activation": _activation,
    "AveragePooling2D": lambda layer: [AveragePooling2D(layer.pool_size, layer.strides)],
    "Conv2D": _conv,
    "Dense": _dense,
    "Dropout": lambda layer: [],
    "Flatten": lambda layer: [Flatten()],
    "GlobalAveragePooling2D": lambda layer: [GlobalAveragePooling2D()],
    "InputLayer": lambda layer: [],
    "ReLU": _relu,
}

_REQUIRED: dict[str, dict[str, Any]] = {
    "AveragePooling2D": {"data_format": "channels_last", "padding": "valid"},
    "Conv2D": {"data_format": "channels_last", "groups": 1, "dilation_rate": (1, 1)},
    "Flatten": {"data_format": "channels_last"},
    "GlobalAveragePooling2D": {"data_format": "channels_last", "keepdims": False},
}
"""What a layer's attributes have to be."""

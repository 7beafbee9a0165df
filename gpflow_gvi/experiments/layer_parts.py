"""Layers of networks: of those in a mean, in a feature map, and of the infinitely wide."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from .derived import Factory, OneOf
from .parts import Count, Fraction, Part, impossible

Activation = Literal["relu", "tanh", "sigmoid", "elu", "gelu", "silu", "softplus", "linear"]

_WEIGHTS = ("kernel_initializer", "dtype")

LAYERS = {
    "dense": Factory(
        "keras.layers:Dense",
        "A fully connected layer; images are flattened before it.",
        supplied=_WEIGHTS,
        units=(Count, 50),
        activation=(Activation, "relu"),
    ),
    "conv2d": Factory(
        "keras.layers:Conv2D",
        "A convolution of images.",
        supplied=_WEIGHTS,
        filters=(Count, 16),
        kernel_size=(Count, 3),
        strides=(Count, 1),
        padding=(Literal["same", "valid"], "same"),
        activation=(Activation, "relu"),
    ),
    "average_pooling_2d": Factory(
        "keras.layers:AveragePooling2D",
        "The average of squares of an image.",
        supplied=("dtype",),
        pool_size=(Count, 2),
    ),
    "max_pooling_2d": Factory(
        "keras.layers:MaxPooling2D",
        "The maximum of squares of an image.",
        supplied=("dtype",),
        pool_size=(Count, 2),
    ),
    "global_average_pooling_2d": Factory(
        "keras.layers:GlobalAveragePooling2D",
        "The average of each channel of an image.",
        supplied=("dtype",),
    ),
    "dropout": Factory(
        "keras.layers:Dropout",
        "Units left out at random, in training.",
        supplied=("seed", "dtype"),
        rate=(Fraction, 0.1),
    ),
}
LAYERS_OF_IMAGES = LAYERS.keys() - {"dense", "dropout"}

_SUPPLIED = {name: operator.itemgetter(name) for name in (*_WEIGHTS, "seed")}
Layer = Annotated[Any, OneOf("Layer", LAYERS, supplied=_SUPPLIED)]
Layers = tuple[Layer, ...]

DEFAULT: Layers = ("dense", "dense")
"""The hidden layers of `recipe.network`."""


def network(
    layers: Sequence[Layer],
    input_shape: tuple[int, ...],
    *,
    readout: int | None = None,
    zeros: bool = False,
    seed: int = 0,
) -> Any:
    """Return a Keras model of the layers, in GPflow's default float.

    :param layers: its hidden layers.
    :param input_shape: of one input.
    :param readout: the units of a linear layer to end with, if any.
    :param zeros: whether that starts at zero.
    :param seed: of the weights; each layer has another one.
    """
    import keras
    from gpflow.config import default_float

    dtype = np.dtype(default_float()).name
    model = keras.Sequential([keras.Input(input_shape, dtype=dtype)])

    def add(layer: Any) -> None:
        shape = model.output_shape[1:] if model.layers else input_shape
        if isinstance(layer, keras.layers.Dense) and len(shape) > 1:
            model.add(keras.layers.Flatten(dtype=dtype))
        model.add(layer)

    def start(number: int) -> Any:
        return keras.initializers.GlorotUniform(seed=seed + number)

    for number, layer in enumerate(layers):
        options = {"kernel_initializer": start(number), "dtype": dtype, "seed": seed + number}
        add(layer.build(options))
    if readout:
        weights = keras.initializers.Zeros() if zeros else start(len(layers))
        add(keras.layers.Dense(readout, kernel_initializer=weights, dtype=dtype))
    if len(model.output_shape) > 2:  # the features of a feature map are vectors
        model.add(keras.layers.Flatten(dtype=dtype))
    return model


def require_images(part: Any, path: str, *, are_images: bool) -> None:
    """Raise for layers of images, anywhere in a part, where inputs are vectors."""
    if isinstance(part, Part):
        kind = getattr(part, "kind", None)
        if not are_images and kind in LAYERS_OF_IMAGES:
            raise impossible(path, kind, "the data are no images; take dense layers.")
        for name in type(part).model_fields:
            require_images(getattr(part, name), f"{path}.{name}", are_images=are_images)
    elif isinstance(part, tuple):
        for number, item in enumerate(part):
            require_images(item, f"{path}.{number}", are_images=are_images)

"""Layers of networks in a mean, in a feature map, and of infinitely wide ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from .base import Count, Fraction, OneOf, Part, gpflow, impossible, keras

Activation = Literal["relu", "tanh", "sigmoid", "elu", "gelu", "silu", "softplus", "linear"]


class LayerOptions(NamedTuple):
    """What a network supplies to its layers."""

    seed: int
    dtype: str

    @property
    def initializer(self) -> Any:
        """What weights start from."""
        return keras.initializers.GlorotUniform(seed=self.seed)


def dense(options: LayerOptions, units: Count = 50, activation: Activation = "relu") -> Any:
    """A fully connected layer; images are flattened before it."""
    return keras.layers.Dense(
        units, activation, kernel_initializer=options.initializer, dtype=options.dtype
    )


def conv2d(
    options: LayerOptions,
    filters: Count = 16,
    kernel_size: Count = 3,
    strides: Count = 1,
    padding: Literal["same", "valid"] = "same",
    activation: Activation = "relu",
) -> Any:
    """A convolution of images."""
    return keras.layers.Conv2D(
        filters,
        kernel_size,
        strides,
        padding,
        activation=activation,
        kernel_initializer=options.initializer,
        dtype=options.dtype,
    )


def _pooling(name: str) -> Callable[..., Any]:
    def pooling(options: LayerOptions, pool_size: Count = 2) -> Any:
        """The average, or the maximum, of squares of an image."""
        return getattr(keras.layers, name)(pool_size, dtype=options.dtype)

    return pooling


def global_average_pooling_2d(options: LayerOptions) -> Any:
    """The average of each channel of an image."""
    return keras.layers.GlobalAveragePooling2D(dtype=options.dtype)


def dropout(options: LayerOptions, rate: Fraction = 0.1) -> Any:
    """Units left out at random, in training."""
    return keras.layers.Dropout(rate, seed=options.seed, dtype=options.dtype)


LAYERS_OF_IMAGES = {
    "conv2d": conv2d,
    "average_pooling_2d": _pooling("AveragePooling2D"),
    "max_pooling_2d": _pooling("MaxPooling2D"),
    "global_average_pooling_2d": global_average_pooling_2d,
}
LAYERS = {"dense": dense, "dropout": dropout, **LAYERS_OF_IMAGES}

Layer = Annotated[Any, OneOf("Layer", LAYERS)]
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
    :param input_shape: the shape of one input.
    :param readout: the units of a linear layer to end with, if any.
    :param zeros: whether that starts at zero.
    :param seed: the seed of the weights; each layer has another one.
    """
    dtype = np.dtype(gpflow.config.default_float()).name
    built = [layer.build(LayerOptions(seed + n, dtype)) for n, layer in enumerate(layers)]
    if readout:
        options = LayerOptions(seed + len(layers), dtype)
        weights = keras.initializers.Zeros() if zeros else options.initializer
        built.append(keras.layers.Dense(readout, kernel_initializer=weights, dtype=dtype))
    model = keras.Sequential([keras.Input(input_shape, dtype=dtype)])
    for layer in built:
        shape = model.output_shape if model.layers else (None, *input_shape)
        if isinstance(layer, keras.layers.Dense) and len(shape) > 2:
            model.add(keras.layers.Flatten(dtype=dtype))
        model.add(layer)
    if len(model.output_shape) > 2:  # the features of a feature map are vectors
        model.add(keras.layers.Flatten(dtype=dtype))
    return model


def require_images(part: Any, path: str) -> None:
    """Raise for layers of images, anywhere in a part whose inputs are vectors."""
    if isinstance(part, Part):
        kind = getattr(part, "kind", None)
        if kind in LAYERS_OF_IMAGES:
            raise impossible(path, kind, "the data are no images; take dense layers.")
        for name in type(part).model_fields:
            require_images(getattr(part, name), f"{path}.{name}")
    elif isinstance(part, tuple):
        for number, item in enumerate(part):
            require_images(item, f"{path}.{number}")

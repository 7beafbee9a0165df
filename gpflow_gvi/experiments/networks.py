"""Layers of networks: of those in a mean, in a feature map, and of the infinitely wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from .parts import BY_KIND, OR_NAME, Count, Fraction, Part, impossible

Activation = Literal["relu", "tanh", "sigmoid", "elu", "gelu", "silu", "softplus", "linear"]


class Dense(Part):
    """A fully connected layer; images are flattened before it."""

    kind: Literal["dense"] = "dense"
    units: Count = 50
    activation: Activation = "relu"

    def build(self, **options: Any) -> Any:
        """Return the layer of Keras."""
        import keras

        return keras.layers.Dense(self.units, self.activation, **options)


class Conv2D(Part):
    """A convolution of images."""

    kind: Literal["conv2d"] = "conv2d"
    filters: Count = 16
    kernel_size: Count = 3
    strides: Count = 1
    padding: Literal["same", "valid"] = "same"
    activation: Activation = "relu"

    def build(self, **options: Any) -> Any:
        """Return the layer of Keras."""
        import keras

        return keras.layers.Conv2D(
            self.filters,
            self.kernel_size,
            strides=self.strides,
            padding=self.padding,
            activation=self.activation,
            **options,
        )


class Pooling(Part):
    """The average, or the maximum, of squares of an image."""

    kind: Literal["average_pooling_2d", "max_pooling_2d"]
    pool_size: Count = 2

    def build(self, *, kernel_initializer: Any, dtype: str) -> Any:
        """Return the layer of Keras; there is nothing to initialise."""
        import keras

        names = {"average_pooling_2d": "AveragePooling2D", "max_pooling_2d": "MaxPooling2D"}
        return getattr(keras.layers, names[self.kind])(self.pool_size, dtype=dtype)


class GlobalPooling(Part):
    """The average of each channel of an image."""

    kind: Literal["global_average_pooling_2d"] = "global_average_pooling_2d"

    def build(self, *, kernel_initializer: Any, dtype: str) -> Any:
        """Return the layer of Keras; there is nothing to initialise."""
        import keras

        return keras.layers.GlobalAveragePooling2D(dtype=dtype)


class Dropout(Part):
    """Units left out at random, in training."""

    kind: Literal["dropout"] = "dropout"
    rate: Fraction = 0.1

    def build(self, *, kernel_initializer: Any, dtype: str) -> Any:
        """Return the layer of Keras, with the seed of the initialiser."""
        import keras

        return keras.layers.Dropout(self.rate, seed=kernel_initializer.seed, dtype=dtype)


Layer = Annotated[Dense | Conv2D | Pooling | GlobalPooling | Dropout, BY_KIND, OR_NAME]
Layers = tuple[Layer, ...]

DEFAULT: Layers = (Dense(), Dense())
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
    hidden = [(layer, False) for layer in layers]
    last = [(Dense(units=readout, activation="linear"), zeros)] if readout else []
    for number, (layer, at_zero) in enumerate([*hidden, *last]):
        shape = model.output_shape[1:] if model.layers else input_shape
        if isinstance(layer, Dense) and len(shape) > 1:
            model.add(keras.layers.Flatten(dtype=dtype))
        start = keras.initializers.GlorotUniform(seed=seed + number)
        built = layer.build(
            kernel_initializer=keras.initializers.Zeros() if at_zero else start, dtype=dtype
        )
        model.add(built)
    if len(model.output_shape) > 2:  # the features of a feature map are vectors
        model.add(keras.layers.Flatten(dtype=dtype))
    return model


def require_images(part: Any, path: str, *, are_images: bool) -> None:
    """Raise for layers of images, anywhere in a part, where inputs are vectors."""
    if isinstance(part, Part):
        if not are_images and isinstance(part, Conv2D | Pooling | GlobalPooling):
            raise impossible(path, part.kind, "the data are no images; take dense layers.")
        for name in type(part).model_fields:
            require_images(getattr(part, name), f"{path}.{name}", are_images=are_images)
    elif isinstance(part, tuple):
        for number, item in enumerate(part):
            require_images(item, f"{path}.{number}", are_images=are_images)

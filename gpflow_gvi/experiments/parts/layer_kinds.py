"""Layers of networks in a mean, in a feature map, and of infinitely wide ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from .part import Count, Entry, Fraction, gpflow, keras, one_of

Activation = Literal["relu", "tanh", "sigmoid", "elu", "gelu", "silu", "softplus", "linear"]


def dense(seed: int, units: Count = 50, activation: Activation = "relu") -> Any:
    """A layer of Keras, with Glorot's initial weights."""
    weights = keras.initializers.GlorotUniform(seed=seed)
    return keras.layers.Dense(units, activation, kernel_initializer=weights, dtype=_dtype())


def dropout(seed: int, rate: Fraction = 0.1) -> Any:
    """A layer of Keras."""
    return keras.layers.Dropout(rate, seed=seed, dtype=_dtype())


LAYERS: dict[str, Entry] = {"dense": dense, "dropout": dropout}
Layer = Annotated[Any, one_of("Layer", LAYERS)]
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

    :param input_shape: that of one input; images are flattened.
    :param readout: the units of a linear layer to end with, if any.
    :param seed: the seed of the weights; each layer has another one.
    """
    model = keras.Sequential([keras.Input(input_shape, dtype=_dtype())])
    if len(input_shape) > 1:
        model.add(keras.layers.Flatten(dtype=_dtype()))
    for number, layer in enumerate(layers):
        model.add(layer.build(seed + number))
    if readout:
        glorot = keras.initializers.GlorotUniform(seed=seed + len(layers))
        weights = keras.initializers.Zeros() if zeros else glorot
        model.add(keras.layers.Dense(readout, kernel_initializer=weights, dtype=_dtype()))
    return model


def _dtype() -> str:
    return np.dtype(gpflow.config.default_float()).name

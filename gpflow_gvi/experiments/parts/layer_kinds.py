"""Layers of networks in a mean, in a feature map, and of infinitely wide ones."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from .part import Constructor, Count, Fraction, Part, gpflow, impossible, keras, one_of

Activation = Literal["relu", "tanh", "sigmoid", "elu", "gelu", "silu", "softplus", "linear"]


def _options(seed: int, dtype: str) -> dict[str, Any]:
    """Return the options that a network supplies to a layer."""
    weights = keras.initializers.GlorotUniform(seed=seed)
    return {"seed": seed, "dtype": dtype, "kernel_initializer": weights}


def _layer(name: str, *supplied: str, **keys: Any) -> Constructor:
    others = {each: operator.itemgetter(each) for each in ("dtype", *supplied)}
    return Constructor(f"keras.layers:{name}", keys, others)


LAYERS_OF_IMAGES = {
    "conv2d": _layer(
        "Conv2D",
        "kernel_initializer",
        filters=(Count, 16),
        kernel_size=(Count, 3),
        strides=(Count, 1),
        padding=(Literal["same", "valid"], "same"),
        activation=(Activation, "relu"),
    ),
    "average_pooling_2d": _layer("AveragePooling2D", pool_size=(Count, 2)),
    "max_pooling_2d": _layer("MaxPooling2D", pool_size=(Count, 2)),
    "global_average_pooling_2d": _layer("GlobalAveragePooling2D"),
}
LAYERS = {
    "dense": _layer(  # images are flattened before it
        "Dense", "kernel_initializer", units=(Count, 50), activation=(Activation, "relu")
    ),
    "dropout": _layer("Dropout", "seed", rate=(Fraction, 0.1)),
    **LAYERS_OF_IMAGES,
}

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

    :param readout: the units of a linear layer to end with, if any.
    :param seed: the seed of the weights; each layer has another one.
    """
    dtype = np.dtype(gpflow.config.default_float()).name
    built = [layer.build(_options(seed + n, dtype)) for n, layer in enumerate(layers)]
    if readout:
        glorot = keras.initializers.GlorotUniform(seed=seed + len(layers))
        weights = keras.initializers.Zeros() if zeros else glorot
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

"""Kernels: those of GPflow, those of this package, and the recipe of `learn`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

import gpflow_gvi as gvi

from ...learning import TrainingData
from .layer_kinds import DEFAULT, Layers, network
from .part import Constructor, Count, Entry, Flag, Positive, gpflow, one_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpflow.kernels import Kernel as GPflowKernel


def _stationary(name: str) -> Callable[..., GPflowKernel]:
    def stationary(
        site: TrainingData,
        variance: Positive = 1.0,
        lengthscale: Positive | None = None,
        ard: Flag = True,
    ) -> GPflowKernel:
        """A kernel of GPflow of the scaled distance between inputs.

        :param lengthscale: Where lengthscales start; √D if not given.
        :param ard: Whether each column has a lengthscale of its own.
        """
        start = np.sqrt(site.D) if lengthscale is None else lengthscale
        return getattr(gpflow.kernels, name)(
            variance=variance, lengthscales=np.full(site.D, start) if ard else start
        )

    return stationary


def _have_a_limit(layers: Layers) -> Layers:
    known = ("relu", "tanh", "linear")
    for layer in layers:
        activation = getattr(layer, "activation", "linear")
        if activation not in known:
            raise ValueError(f"{activation} has no known limit; take one of {', '.join(known)}")
        if layer.kind == "max_pooling_2d":
            raise ValueError("max_pooling_2d has no known limit; take average_pooling_2d")
    return layers


def nngp(
    site: TrainingData, layers: Annotated[Layers, AfterValidator(_have_a_limit)] = DEFAULT
) -> gvi.kernels.NNGP:
    """A network of infinite width, with a linear readout; units and filters do not matter.

    Variances of weights start at 2 before a ReLU and at 1 elsewhere, those of biases at 0.1. `tanh`
    becomes the error function.
    """
    return gvi.kernels.NNGP.from_keras(network(layers, site.input_shape, readout=1))


def feature_map(
    site: TrainingData,
    base: BaseKernel = "linear",
    layers: Annotated[Layers, Field(min_length=1)] = DEFAULT,
) -> gvi.kernels.FeatureMap:
    """A kernel on the outputs of the last layer of a network, which is trained with it."""
    features = network(layers, site.input_shape, seed=site.seed)
    F = features.output_shape[-1]
    inside = dataclasses.replace(site, X=np.zeros([1, F], site.X.dtype), input_shape=(F,))
    return gvi.kernels.FeatureMap(base.build(inside), features)


def _combination(name: str) -> Callable[..., GPflowKernel]:
    def combination(
        site: TrainingData, parts: Annotated[tuple[BaseKernel, ...], Field(min_length=2)]
    ) -> GPflowKernel:
        """A sum or a product of kernels."""
        return getattr(gpflow.kernels, name)([part.build(site) for part in parts])

    return combination


def _gpflow(name: str, **keys: Any) -> Constructor:
    return Constructor(f"gpflow.kernels:{name}", {**keys, "variance": (Positive, 1.0)})


KERNELS: dict[str, Entry] = {
    "squared_exponential": _stationary("SquaredExponential"),
    "exponential": _stationary("Exponential"),
    "matern12": _stationary("Matern12"),
    "matern32": _stationary("Matern32"),
    "matern52": _stationary("Matern52"),
    "linear": _gpflow("Linear"),
    "polynomial": _gpflow("Polynomial", degree=(Count, 2), offset=(Positive, 1.0)),
    "constant": _gpflow("Constant"),
    "nngp": nngp,
    "feature_map": feature_map,
    "sum": _combination("Sum"),
    "product": _combination("Product"),
}
BaseKernel = Annotated[Any, one_of("Kernel", KERNELS)]
Kernel = Annotated[
    Any, one_of("Kernel", {**KERNELS, "recipe": lambda site: gvi.recipe.Recipe().kernels(site)})
]

"""Kernels: those of GPflow, those of this package, and the recipe of `learn`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, field_validator

import gpflow_gvi as gvi

from .networks import DEFAULT, Layers, network
from .parts import BY_KIND, OR_NAME, Part, Positive

if TYPE_CHECKING:
    from gpflow.kernels import Kernel as GPflowKernel

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Site:
    """What a part is built for: data, in the units of the model."""

    X: Array
    """Inputs to train with, [N, D]."""
    Y: Array
    """Observations there, or labels."""
    responses: Array
    """Values that latent functions could have there: [N, J]."""
    seed: int
    input_shape: tuple[int, ...]
    """The shape of one input: (D,), or that of an image."""

    @property
    def D(self) -> int:  # noqa: N802
        """The number of columns of X."""
        return int(self.X.shape[-1])

    @property
    def J(self) -> int:  # noqa: N802
        """The number of latent functions."""
        return int(self.responses.shape[-1])


class Stationary(Part):
    """A kernel of GPflow of the scaled distance between inputs."""

    kind: Literal["squared_exponential", "exponential", "matern12", "matern32", "matern52"]
    variance: Positive = 1.0
    lengthscale: Positive | None = None
    """Where lengthscales start; √D if not given."""
    ard: bool = True
    """Whether each column has a lengthscale of its own."""

    def build(self, site: Site) -> GPflowKernel:
        """Return the kernel."""
        import gpflow

        start = np.sqrt(site.D) if self.lengthscale is None else self.lengthscale
        return getattr(gpflow.kernels, _camel_case(self.kind))(
            variance=self.variance, lengthscales=np.full(site.D, start) if self.ard else start
        )


class Simple(Part):
    """Linear and constant functions."""

    kind: Literal["linear", "constant"]
    variance: Positive = 1.0

    def build(self, site: Site) -> GPflowKernel:
        """Return the kernel."""
        import gpflow

        return getattr(gpflow.kernels, _camel_case(self.kind))(variance=self.variance)


class NNGP(Part):
    """A network of infinite width, with a linear readout; units and filters do not matter.

    Variances of weights start at 2 before a ReLU and at 1 elsewhere, those of biases at 0.1. `tanh`
    becomes the error function.
    """

    kind: Literal["nngp"] = "nngp"
    layers: Layers = DEFAULT

    @field_validator("layers")
    @classmethod
    def _has_a_limit(cls, layers: Layers) -> Layers:
        known = ("relu", "tanh", "linear")
        for layer in layers:
            activation = getattr(layer, "activation", "linear")
            if activation not in known:
                raise ValueError(f"{activation} has no known limit; take one of {', '.join(known)}")
            if layer.kind == "max_pooling_2d":
                raise ValueError("max_pooling_2d has no known limit; take average_pooling_2d")
        return layers

    def build(self, site: Site) -> GPflowKernel:
        """Return the kernel."""
        return gvi.kernels.NNGP.from_keras(network(self.layers, site.input_shape, readout=1))


class FeatureMap(Part):
    """A kernel on the outputs of the last layer of a network, which is trained with it."""

    kind: Literal["feature_map"] = "feature_map"
    base: BaseKernel = Simple(kind="linear")
    layers: Annotated[Layers, Field(min_length=1)] = DEFAULT

    def build(self, site: Site) -> GPflowKernel:
        """Return the kernel."""
        features = network(self.layers, site.input_shape, seed=site.seed)
        F = features.output_shape[-1]
        inside = dataclasses.replace(site, X=np.zeros([1, F], site.X.dtype), input_shape=(F,))
        return gvi.kernels.FeatureMap(self.base.build(inside), features)


class Combination(Part):
    """A sum or a product of kernels."""

    kind: Literal["sum", "product"]
    parts: Annotated[tuple[BaseKernel, ...], Field(min_length=2)]

    def build(self, site: Site) -> GPflowKernel:
        """Return the kernel."""
        import gpflow

        return getattr(gpflow.kernels, _camel_case(self.kind))(
            [part.build(site) for part in self.parts]
        )


class Recipe(Part):
    """The kernels of `gpflow_gvi.learn`, of which the one that predicts held-out data best."""

    kind: Literal["recipe"] = "recipe"

    def build(self, site: Site) -> list[GPflowKernel]:
        """Return the kernels to choose among."""
        return gvi.recipe.kernels(site.X, site.responses)


BaseKernel = Annotated[Stationary | Simple | NNGP | FeatureMap | Combination, BY_KIND, OR_NAME]
Kernel = Annotated[Stationary | Simple | NNGP | FeatureMap | Combination | Recipe, BY_KIND, OR_NAME]

FeatureMap.model_rebuild()
Combination.model_rebuild()


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))

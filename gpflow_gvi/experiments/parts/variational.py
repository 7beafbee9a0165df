"""The variational process Q: its mean and its covariance."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

import gpflow_gvi as gvi

from ...learning import InducingPlusNetwork, Start, fit_by_squares, inducing_mean, variational
from .base import OneOf, Positive
from .kernels import BaseKernel
from .layers import DEFAULT, Layers, network
from .objective import points_of_box

if TYPE_CHECKING:
    from gpflow.functions import MeanFunction
    from gpflow.kernels import Kernel as GPflowKernel


def network_mean(
    start: Start,
    layers: Layers = DEFAULT,
    readout: Literal["zeros", "random"] = "zeros",
    fitted_to: Literal["nothing", "posterior"] = "nothing",
) -> MeanFunction:
    """A network with a linear readout of one unit for each latent function.

    :param readout: Where the weights of the readout start.
    :param fitted_to: What the network is fitted to before Q is trained: nothing, or the mean of the
        sparse posterior given all rows, at the inputs and as many points of the box around them.
    """
    zeros = readout == "zeros"
    mean = gvi.mean_functions.Network(
        network(layers, start.input_shape, readout=start.J, zeros=zeros, seed=start.seed)
    )
    if fitted_to == "posterior":
        X = np.concatenate([start.X, points_of_box(start, len(start.X), 0.0)])
        fit_by_squares(mean, X, inducing_mean(start)(X))
    return mean


def regulariser_mean(start: Start) -> MeanFunction:
    """The mean of P, as it is."""
    return variational.mean_of_regulariser(start)


def recipe_mean(start: Start) -> MeanFunction:
    """The mean of `learn`: that of the sparse posterior, with a network added."""
    return InducingPlusNetwork()(start)


def sum_of_means(
    start: Start, parts: Annotated[tuple[Mean, ...], Field(min_length=2)]
) -> MeanFunction:
    """A sum of means."""
    return functools.reduce(operator.add, [part.build(start) for part in parts])


MEANS = {
    "network": network_mean,
    "inducing": "gpflow_gvi.mean_functions:Inducing.from_data",
    "regulariser": regulariser_mean,
    "recipe": recipe_mean,
    "sum": sum_of_means,
}
Mean = Annotated[Any, OneOf("Mean", MEANS, supplied=variational.SUPPLIED)]


def tempered(start: Start, base: Covariance = "cholesky", factor: Positive = 1.0) -> GPflowKernel:
    """A factor, to be learned, times another covariance."""
    return gvi.covariances.Tempered(base.build(start), factor)


def kernel_of_regulariser(start: Start) -> GPflowKernel:
    """The kernel of P, as it is."""
    return variational.kernel_of_regulariser(start)


COVARIANCES = {
    **variational.COVARIANCES,
    "tempered": tempered,
    "regulariser": kernel_of_regulariser,
}
Covariance = Annotated[
    Any,
    OneOf("Covariance", COVARIANCES, supplied=variational.SUPPLIED, types={"Kernel": BaseKernel}),
]

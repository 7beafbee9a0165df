"""The variational process Q: its mean and its covariance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

import gpflow_gvi as gvi

from ...learning import InducingPlusNetwork, Start, fit_by_squares, inducing_mean, variational
from .kernels import BaseKernel
from .layer_kinds import DEFAULT, Layers, network
from .objective import points_of_box
from .part import Constructor, Entry, Flag, one_of

if TYPE_CHECKING:
    from gpflow.functions import MeanFunction

WHITEN = {
    "whiten": (
        Flag,
        Field(True, description="Whether what is trained belongs to L⁻¹u, with K_ZZ = LLᵀ, or u."),
    )
}


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


MEANS: dict[str, Entry] = {
    "network": network_mean,
    "inducing": Constructor(
        "gpflow_gvi.mean_functions:Inducing.from_data", WHITEN, variational.SUPPLIED
    ),
    "regulariser": variational.mean_of_regulariser,
    "recipe": lambda start: InducingPlusNetwork()(start),  # that of `learn`
}
Mean = Annotated[Any, one_of("Mean", MEANS)]


BASE_KERNEL = {
    "base_kernel": (
        BaseKernel | None,
        Field(
            None, description="The kernel r_0 of Q alone; null to start from a copy of that of P."
        ),
    )
}
KEYS: dict[str, Any] = {"cholesky": WHITEN, "diagonal": {}}
COVARIANCES: dict[str, Entry] = {
    **{
        kind: Constructor(path, KEYS.get(kind, BASE_KERNEL), variational.SUPPLIED)
        for kind, path in variational.COVARIANCES.items()
    },
    "regulariser": variational.kernel_of_regulariser,
}
Covariance = Annotated[Any, one_of("Covariance", COVARIANCES)]

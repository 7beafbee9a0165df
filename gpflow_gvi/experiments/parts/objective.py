"""The variational process Q, and its objective: the likelihood, the loss and the divergence."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field
from scipy.stats import qmc

import gpflow_gvi as gvi

from ...learning import (
    InducingPlusNetwork,
    ModelSettings,
    Start,
    TrainingData,
    fit_by_squares,
    inducing_mean,
    variational,
)
from .kernels import BaseKernel
from .layer_kinds import DEFAULT, Layers, network
from .part import (
    Built,
    Constructor,
    Count,
    Entry,
    Flag,
    Fraction,
    NonNegative,
    Positive,
    gpflow,
    one_of,
)

if TYPE_CHECKING:
    from gpflow.functions import MeanFunction
    from gpflow.likelihoods import Likelihood as GPflowLikelihood

Array = np.ndarray[Any, Any]


# Likelihoods, built for observations or labels Y


def gaussian(Y: Array, trainable: Flag = True) -> GPflowLikelihood | None:
    """Gaussian noise; its variance is fitted with the regulariser.

    :param trainable: Whether it is trained further with Q.
    """
    return None  # the regulariser makes it


def multi_class(Y: Array) -> GPflowLikelihood:
    """Labels 0, 1, ..., by the largest latent function."""
    return gpflow.likelihoods.MultiClass(int(np.max(Y)) + 1)


def softmax(Y: Array) -> GPflowLikelihood:
    """Labels 0, 1, ..., by the softmax of the latent functions."""
    return gpflow.likelihoods.Softmax(int(np.max(Y)) + 1)


LIKELIHOODS: dict[str, Entry] = {
    "gaussian": gaussian,
    "bernoulli": lambda Y: gpflow.likelihoods.Bernoulli(),
    "multi_class": multi_class,
    "softmax": softmax,
}
Likelihood = Annotated[Any, one_of("Likelihood", LIKELIHOODS)]


# Losses

ROBUSTNESS = (Positive, Field(1.5, description="Above one for robustness to outliers."))
KEYS_OF_LOSSES = {"beta_loss": {"beta": ROBUSTNESS}, "gamma_loss": {"gamma": ROBUSTNESS}}
LOSSES = {
    kind: Constructor(path, KEYS_OF_LOSSES.get(kind, {}))
    for kind, path in variational.LOSSES.items()
}
Loss = Annotated[Any, one_of("Loss", LOSSES)]


# Contexts, in the units of the model: standard ones, unless `standardise` is false


def uniform_box(
    data: TrainingData, margin: NonNegative = 0.5, num_points: Count | None = None
) -> gvi.contexts.Context:
    """Points of the box around the inputs to train with.

    :param margin: How far it goes beyond them, in each direction.
    :param num_points: The number of points; null for that of the batch.
    """
    return gvi.contexts.UniformBox(*_box(data, margin), num_points, seed=data.seed)


def halton_box(
    data: TrainingData, num_points: Count, margin: NonNegative = 0.5
) -> gvi.contexts.Context:
    """Points of a Halton sequence, the same at each step, in the box around the inputs.

    :param margin: How far the box goes beyond the inputs, in each direction.
    """
    return gvi.contexts.Inputs(_points_of_box(data, num_points, margin))


def _box(data: TrainingData, margin: float) -> tuple[Array, Array]:
    return data.X.min(axis=0) - margin, data.X.max(axis=0) + margin


def _points_of_box(data: TrainingData, num_points: int, margin: float) -> Array:
    lower, upper = _box(data, margin)
    unit = qmc.Halton(data.D, scramble=True, seed=data.seed).random(num_points)  # [C, D]
    return (lower + (upper - lower) * unit).astype(data.X.dtype)


CONTEXTS: dict[str, Entry] = {
    "uniform_box": uniform_box,
    "halton_box": halton_box,
    "gaussian_noise": Constructor(
        "gpflow_gvi.divergences.contexts:GaussianNoise",
        {
            "scale": (Positive, Field(0.5, description="The standard deviation.")),
            "num_points": (Count | None, None),
        },
        {"seed": operator.attrgetter("seed")},
    ),
}
Context = Annotated[Any, one_of("Context", CONTEXTS)]


# Divergences


class Weighted(Built):
    """A divergence with its weight in the objective."""

    weight: NonNegative | Literal["1/N"] = ModelSettings.divergence_weight
    """λ; the default is that of `gpflow_gvi.learn`. A divergence is an average over inputs: 1 is a
    sum over the data, as the thesis has of projected ones, and 1/N (so written) the scale of
    `GWI`, one distance beside the sum of the losses."""


_WASSERSTEIN = "gpflow_gvi.divergences.wasserstein"
ESTIMATORS: dict[str, Entry] = {
    "exact": Constructor(f"{_WASSERSTEIN}:Exact", {}),
    "newton_schulz": Constructor(f"{_WASSERSTEIN}:NewtonSchulz", {}),
    "low_rank": Constructor(
        f"{_WASSERSTEIN}:LowRank", {"rank": (Count | None, None), "tolerance": (Fraction, 1e-6)}
    ),
    "landmark": Constructor(f"{_WASSERSTEIN}:Landmark", {"num_landmarks": (Count, 100)}),
    "marginal": Constructor(f"{_WASSERSTEIN}:Marginal", {}),
}
Estimator = Annotated[Any, one_of("CovarianceDistance", ESTIMATORS)]


def inducing_kl(data: TrainingData, weight: NonNegative = 1.0) -> gvi.divergences.Divergence:
    """KL[Q, P] of the inducing variables, divided by N: with weight 1 minus the evidence bound."""
    return gvi.divergences.InducingKL()


_CONTEXT = Field(None, description="Where it is evaluated; null for the inputs of the batch.")
KEYS_OF_DIVERGENCES: dict[str, Any] = {
    "projected_renyi": {"alpha": (Positive, Field(0.5, description="The order."))},
    "regularised_kl": {"gamma": (Positive, 1e-2)},
    "gaussian_wasserstein": {"estimator": (Estimator, "exact")},
}
DIVERGENCES: dict[str, Entry] = {
    **{
        kind: Constructor(
            path, {**KEYS_OF_DIVERGENCES.get(kind, {}), "context": (Context | None, _CONTEXT)}
        )
        for kind, path in variational.DIVERGENCES.items()
    },
    "inducing_kl": inducing_kl,
}
Divergence = Annotated[Any, one_of("Divergence", DIVERGENCES, base=Weighted)]


# The mean and the covariance of Q


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
        X = np.concatenate([start.X, _points_of_box(start, len(start.X), 0.0)])
        fit_by_squares(mean, X, inducing_mean(start)(X))
    return mean


_WHITEN = Field(True, description="Whether what is trained belongs to L⁻¹u, with K_ZZ = LLᵀ, or u.")
WHITEN = {"whiten": (Flag, _WHITEN)}
MEANS: dict[str, Entry] = {
    "network": network_mean,
    "inducing": Constructor(
        "gpflow_gvi.mean_functions:Inducing.from_data", WHITEN, variational.SUPPLIED
    ),
    "regulariser": variational.mean_of_regulariser,
    "recipe": lambda start: InducingPlusNetwork()(start),  # that of `learn`
}
Mean = Annotated[Any, one_of("Mean", MEANS)]


_BASE = "The kernel r_0 of Q alone; null to start from a copy of that of P."
BASE_KERNEL = {"base_kernel": (BaseKernel | None, Field(None, description=_BASE))}
KEYS_OF_COVARIANCES: dict[str, Any] = {"cholesky": WHITEN, "diagonal": {}}
COVARIANCES: dict[str, Entry] = {
    **{
        kind: Constructor(path, KEYS_OF_COVARIANCES.get(kind, BASE_KERNEL), variational.SUPPLIED)
        for kind, path in variational.COVARIANCES.items()
    },
    "regulariser": variational.kernel_of_regulariser,
}
Covariance = Annotated[Any, one_of("Covariance", COVARIANCES)]

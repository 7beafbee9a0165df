"""The objective: the likelihood, the loss, the divergence and where that is evaluated."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

import gpflow_gvi as gvi

from ..learning.settings import ModelSettings
from .parts import Count, Derived, Entry, Flag, NonNegative, Number, OneOf, Positive

if TYPE_CHECKING:
    from gpflow.likelihoods import Likelihood as GPflowLikelihood

Array = np.ndarray[Any, Any]


# Likelihoods, built for observations or labels Y


def gaussian(Y: Array, trainable: Flag = True) -> GPflowLikelihood | None:
    """Gaussian noise; its variance is fitted with the regulariser.

    :param trainable: Whether it is trained further with Q.
    """
    return None  # the regulariser makes it


def bernoulli(Y: Array) -> GPflowLikelihood:
    """Labels 0 and 1."""
    import gpflow

    return gpflow.likelihoods.Bernoulli()


def multi_class(Y: Array) -> GPflowLikelihood:
    """Labels 0, 1, ..., by the largest latent function."""
    import gpflow

    return gpflow.likelihoods.MultiClass(int(np.max(Y)) + 1)


def softmax(Y: Array) -> GPflowLikelihood:
    """Labels 0, 1, ..., by the softmax of the latent functions."""
    import gpflow

    return gpflow.likelihoods.Softmax(int(np.max(Y)) + 1)


LIKELIHOODS = {
    function.__name__: function for function in (gaussian, bernoulli, multi_class, softmax)
}
Likelihood = Annotated[Any, OneOf("Likelihood", LIKELIHOODS)]


# Losses

LOSSES = {
    "log_loss": "gpflow_gvi.losses:LogLoss",
    "predictive_log_loss": "gpflow_gvi.losses:PredictiveLogLoss",
    "beta_loss": "gpflow_gvi.losses:BetaLoss",
    "gamma_loss": "gpflow_gvi.losses:GammaLoss",
}
Loss = Annotated[Any, OneOf("Loss", LOSSES)]


# Contexts, in the units of the model: standard ones, unless `standardise` is false


class RunInputs(NamedTuple):
    """What a run supplies to a divergence and its context."""

    X: Array
    """All inputs to train with, [N, D]."""
    seed: int


def uniform_box(
    run: RunInputs, margin: NonNegative = 0.5, num_points: Count | None = None
) -> gvi.contexts.Context:
    """Points of the box around the inputs to train with.

    :param margin: How far it goes beyond them, in each direction.
    :param num_points: The number of points; null for that of the batch.
    """
    lower, upper = run.X.min(axis=0) - margin, run.X.max(axis=0) + margin
    return gvi.contexts.UniformBox(lower, upper, num_points, seed=run.seed)


Point = Annotated[tuple[Number, ...], Field(min_length=1)]


def inputs(
    run: RunInputs,
    points: Annotated[tuple[Point, ...], Field(min_length=1)],
    num_points: Count | None = None,
) -> gvi.contexts.Context:
    """Points that are listed.

    :param points: A list of them, each a list of numbers.
    :param num_points: The number of those drawn for each step; null for all of them.
    """
    from gpflow.config import default_float

    return gvi.contexts.Inputs(np.array(points, default_float()), num_points, seed=run.seed)


def sum_of_contexts(
    run: RunInputs, parts: Annotated[tuple[Context, ...], Field(min_length=2)]
) -> gvi.contexts.Context:
    """The points of several contexts."""
    return functools.reduce(operator.add, [part.build(run) for part in parts])


_CONTEXTS = "gpflow_gvi.divergences.contexts"
CONTEXTS: dict[str, Entry] = {
    "training_inputs": f"{_CONTEXTS}:TrainingInputs",
    "uniform_box": uniform_box,
    "gaussian_noise": (f"{_CONTEXTS}:GaussianNoise", {"scale": (Positive, 0.5)}),
    "inputs": inputs,
    "sum": sum_of_contexts,
}
Context = Annotated[Any, OneOf("Context", CONTEXTS, supplied={"seed": operator.attrgetter("seed")})]


# Divergences


class AtInputs(Derived):
    """A divergence with its weight in the objective."""

    weight: NonNegative = ModelSettings.divergence_weight
    """λ; the default is that of `gpflow_gvi.learn`."""


_WASSERSTEIN = "gpflow_gvi.divergences.wasserstein"
ESTIMATORS = {
    "exact": f"{_WASSERSTEIN}:Exact",
    "newton_schulz": f"{_WASSERSTEIN}:NewtonSchulz",
    "blocks": f"{_WASSERSTEIN}:Blocks",
    "low_rank": f"{_WASSERSTEIN}:LowRank",
    "landmark": f"{_WASSERSTEIN}:Landmark",
    "marginal": f"{_WASSERSTEIN}:Marginal",
}
Estimator = Annotated[Any, OneOf("CovarianceDistance", ESTIMATORS)]

_DIVERGENCES = "gpflow_gvi.divergences"
DIVERGENCES: dict[str, Entry] = {
    "inducing_kl": (f"{_DIVERGENCES}:InducingKL", {"weight": (NonNegative, 1.0)}),
    "projected_kl": f"{_DIVERGENCES}:ProjectedKL",
    "projected_reverse_kl": f"{_DIVERGENCES}:ProjectedReverseKL",
    "projected_renyi": f"{_DIVERGENCES}:ProjectedRenyi",
    "projected_bhattacharyya": f"{_DIVERGENCES}:ProjectedBhattacharyya",
    "projected_hellinger": f"{_DIVERGENCES}:ProjectedHellinger",
    "projected_wasserstein": f"{_DIVERGENCES}:ProjectedWasserstein",
    "projected_squared_difference": f"{_DIVERGENCES}:ProjectedSquaredDifference",
    "gaussian_wasserstein": (
        f"{_DIVERGENCES}:GaussianWasserstein",
        {"estimator": (Estimator, "exact")},
    ),
    "regularised_kl": f"{_DIVERGENCES}:RegularisedKL",
}
Divergence = Annotated[
    Any, OneOf("Divergence", DIVERGENCES, types={"Context": Context}, base=AtInputs)
]

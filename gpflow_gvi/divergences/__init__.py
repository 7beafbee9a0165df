"""Divergences D[Q, P] between Gaussian processes, each an average over the inputs."""

from .base import Divergence
from .kl import InducingKL, RegularisedKL
from .projected import (
    ProjectedBhattacharyya,
    ProjectedDivergence,
    ProjectedHellinger,
    ProjectedKL,
    ProjectedRenyi,
    ProjectedReverseKL,
    ProjectedSquaredDifference,
    ProjectedWasserstein,
)
from .wasserstein import GaussianWasserstein

__all__ = [
    "Divergence",
    "GaussianWasserstein",
    "InducingKL",
    "ProjectedBhattacharyya",
    "ProjectedDivergence",
    "ProjectedHellinger",
    "ProjectedKL",
    "ProjectedRenyi",
    "ProjectedReverseKL",
    "ProjectedSquaredDifference",
    "ProjectedWasserstein",
    "RegularisedKL",
]

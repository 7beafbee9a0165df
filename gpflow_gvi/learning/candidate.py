"""What is compared: P = GP(m + Σ_c w_c h_c, k) under a likelihood, with or without predictors h."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from .._core.graphs import deepcopy
from .noise import VaryingNoise
from .score import Predictions

if TYPE_CHECKING:
    from .candidate_fits import Fits


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A P to fit, or a fitted one: its parts have the values to start from, or those found."""

    kernel: Kernel
    """k."""
    likelihood: Likelihood
    """p(y | f), the noise."""
    mean: MeanFunction
    """m, without the predictors."""
    weights: AnyNDArray | None = None
    """w, [C, J]; None if P is not around predictors."""
    family: Hashable = None
    """A key that kernels share if one graph evaluates them."""
    loss: float = np.nan
    """Minus the log evidence, or its bound, of a fitted one."""

    @property
    def is_around(self) -> bool:
        """Whether P is around predictors."""
        return self.weights is not None

    @property
    def noise(self) -> VaryingNoise | None:
        """The variance of the noise as a function of x, if it varies."""
        variance = getattr(self.likelihood, "variance", None)
        return variance if isinstance(variance, VaryingNoise) else None

    @functools.cached_property
    def num_parameters(self) -> int:
        """The number of fitted parameters."""
        variables = (
            *self.kernel.trainable_variables,
            *self.mean.trainable_variables,
            *self.likelihood.trainable_variables,
        )
        of_weights = 0 if self.weights is None else self.weights.size
        return of_weights + sum(variable.shape.num_elements() for variable in variables)

    def replace(self, **changes: Any) -> Candidate:
        """Return the candidate with other parts."""
        return dataclasses.replace(self, **changes)

    def copied(self) -> Candidate:
        """Return the candidate with parts of its own; noise that varies is made for each."""
        likelihood = self.likelihood if self.noise is not None else deepcopy(self.likelihood)
        parts = {"kernel": deepcopy(self.kernel), "mean": deepcopy(self.mean)}
        return self.replace(likelihood=likelihood, **parts)


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fitted candidate, and how it predicts each group of rows from all others.

    That has a closed form with the hyper-parameters of all rows: it is a screening, and no more.
    """

    candidate: Candidate
    left_out: Predictions
    """Predictions of observations under Gaussian noise, else of f."""
    nll: float
    """The negative log density of a row left out, in original units, and p/N for p parameters that
    N rows were fitted by: each row is among these (Akaike 1974)."""
    by: Fits
    """The fits that it is from, to y or to log y."""

    @property
    def used(self) -> AnyNDArray:
        """The predictors that have a weight, by their numbers."""
        weights = self.candidate.weights
        weights = np.zeros([0, 1]) if weights is None else weights
        return np.flatnonzero(
            np.max(np.abs(weights), axis=1) > self.by.recipe.min_weight_of_predictor
        )

    @property
    def mean(self) -> AnyNDArray:
        """The mean of each row left out: [N, J]."""
        return self.left_out.mean[0]


def best_of(fits: list[Fitted]) -> Fitted:
    """Return the fit that predicts best."""
    return min(fits, key=lambda each: each.nll if np.isfinite(each.nll) else np.inf)


def near_best(fits: list[Fitted], gap: float, count: int = 2) -> list[Fitted]:
    """Return the best fit and those worse by less than a gap: at most `count` in all."""
    limit = best_of(fits).nll + gap
    near = sorted((each for each in fits if each.nll < limit), key=lambda each: each.nll)
    return near[:count] or [best_of(fits)]

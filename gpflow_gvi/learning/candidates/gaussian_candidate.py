"""A candidate for P under Gaussian noise, and how it is judged."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ...mean_functions.predictor import Predictor
from ...regulariser.fit import Regulariser
from ..score import MAX_FACTOR, MIN_FACTOR, Predictions
from ..start import TrainingData
from ..summary import described
from .candidate import Candidate, penalty


@dataclasses.dataclass(frozen=True)
class GaussianCandidate(Candidate):
    """A candidate under Gaussian noise; its `nll`, of tempered predictions, is a screening."""

    left_out: Predictions
    """Predictions of each group of rows by all others, with hyper-parameters of all rows."""
    errors: AnyNDArray
    """σ² (y - mean)² / variance, with the variance of the observation given the others, of which
    the noise has the share σ²: the squared errors that are noise, [N, J]."""
    is_around: bool
    """Whether P is around predictors."""
    weights: AnyNDArray
    """Of the predictors: [C, J]."""
    pattern: Predictor | None
    """Of the noise, if it varies."""
    exponent: float
    """κ, of the pattern."""
    num_points: int | None
    """M of the fit; None if it had the exact evidence."""
    began_at: tuple[Kernel, Likelihood]
    """What this fit began at."""

    @classmethod
    def judged(
        cls,
        P: Regulariser,
        num_rows: int,
        data: TrainingData,
        predicted: MeanAndVariance,
        noise_variance: AnyNDArray,
        **fields: Any,
    ) -> GaussianCandidate:
        """Return a fitted P with what its predictions of rows left out are worth.

        :param num_rows: the number of rows that it was fitted to.
        :param data: the rows that are predicted.
        :param predicted: mean and variance of each observation given the others, [N, J].
        :param noise_variance: σ², as `outputs.noise_variance_at` returns it.
        """
        mean, variance = (np.asarray(part) for part in predicted)
        errors = np.square(data.responses - mean) / variance
        factor = np.clip(np.mean(errors, axis=0), MIN_FACTOR, MAX_FACTOR)
        logs = np.log(factor * variance) + errors / factor - 1.0
        nll = 0.5 * float(np.sum(np.mean(logs, axis=0))) + penalty(P, num_rows)
        predictions = Predictions(mean[None], variance[None], data.responses)
        return cls(P, nll, predictions, noise_variance * errors, **fields)

    @property
    def name(self) -> str:
        """What it is called in reports."""
        kernel = self.regulariser.prior.kernel
        return described(kernel, around=self.is_around, varying=self.pattern is not None)

    @property
    def mean(self) -> AnyNDArray:
        """Of each observation given the others: [N, J]."""
        return self.left_out.mean[0]


def density_constant(data: TrainingData) -> float:
    """Return what the `nll` of candidates leaves out, and the change to original units."""
    return float(np.sum(0.5 + 0.5 * np.log(2.0 * np.pi) + np.log(data.units[1].scale)))

"""A candidate for P under Gaussian noise, and how it is judged by predictions of rows left out."""

from __future__ import annotations

import dataclasses

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood

from ...calibration.tempering import MAX_FACTOR
from ...regulariser.fit import Regulariser
from ..start import TrainingData
from .candidate import Candidate, penalty


@dataclasses.dataclass(frozen=True)
class GaussianCandidate(Candidate):
    """A candidate under Gaussian noise.

    Its `nll` is that of tempered predictions; of few rows it is of predictions as they are.
    """

    mean: AnyNDArray
    """Of each observation given the others: [N, J]."""
    errors: AnyNDArray
    """σ² (y - mean)² / variance, with the variance of the observation given the others, of which
    the noise has the share σ²: the squared errors that are noise, [N, J]."""
    is_around: bool
    """Whether P is around predictors."""
    origin: Kernel
    """The kernel that it was first fitted from."""
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
        *,
        is_around: bool,
        origin: Kernel,
        began_at: tuple[Kernel, Likelihood],
    ) -> GaussianCandidate:
        """Return a fitted P with what its predictions of rows left out are worth.

        :param num_rows: the number of rows that it was fitted to.
        :param data: the rows that are predicted.
        :param predicted: mean and variance of each observation given the others, [N, J].
        :param noise_variance: σ², as `outputs.noise_variance_at` returns it.
        """
        mean, variance = (np.asarray(part) for part in predicted)
        errors = np.square(data.responses - mean) / variance
        logs, error = np.mean(np.log(variance), axis=0), np.mean(errors, axis=0)
        if P.left_out is None:
            factor = np.maximum(error, 1.0 / MAX_FACTOR)
            nll = 0.5 * float(np.sum(np.log(factor) + logs)) + penalty(P, num_rows)
        else:  # from few rows the factor of the variance is hardly known
            nll = 0.5 * float(np.sum(error - 1.0 + logs))
        return cls(P, nll, mean, noise_variance * errors, is_around, origin, began_at)


def density_constant(data: TrainingData) -> float:
    """Return what the `nll` of candidates leaves out, and the change to original units."""
    return float(np.sum(0.5 + 0.5 * np.log(2.0 * np.pi) + np.log(data.units[1].scale)))

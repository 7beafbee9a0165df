"""Which predictors are worth a fit of P around them, judged by their errors at rows left out."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray

MAX_ERROR_RATIO = 1.1
"""Predictors of the recipe with more than this times P's own error are not considered: a weighted
sum gains by one with r times the error only if errors have a correlation below 1/r (Bates and
Granger 1969, "The combination of forecasts"), but both have the noise in common."""

MAX_RATIO_TO_BEST = 2.0
"""Predictors of the recipe with more than this times the error of the best one are left out: their
weights would be near zero, and four more fits of each take long."""


def have_small_errors(
    of_predictors: AnyNDArray, of_process: AnyNDArray, max_ratio: float = MAX_ERROR_RATIO
) -> bool:
    """Return whether one of the predictors has errors not much larger than those of a process.

    :param of_predictors: [N, C, J].
    :param of_process: [N, J].
    :param max_ratio: up to how many times as large they may be.
    """
    largest = max_ratio * _rms(of_process)
    return any(_rms(errors) < largest for errors in np.moveaxis(of_predictors, 1, 0))


def useful(errors: AnyNDArray, num_networks: int) -> list[int]:
    """Return the numbers of the predictors to keep, judged by one fold.

    A network that errs more than another predictor adds little but its noise.

    :param errors: [N, C, J].
    :param num_networks: how many of the predictors, the last ones, are networks.
    """
    rms = np.array([_rms(each) for each in np.moveaxis(errors, 1, 0)])
    limit = np.full(len(rms), MAX_RATIO_TO_BEST * rms.min())
    limit[len(rms) - num_networks :] = rms.min()
    return [int(c) for c in np.flatnonzero(rms <= limit)]


def _rms(errors: AnyNDArray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))

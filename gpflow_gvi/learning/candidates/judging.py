"""How candidates are judged: by what is fitted without the rows that it predicts.

Of up to `MAX_ROWS_OF_REFITS` rows each candidate is fitted once more without each fold of them. Of
more rows hyper-parameters are fitted to a part, and the others are predicted in closed form.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from ..._core import progress
from ..._core.errors import NumericsWarning
from ...calibration import tempering
from ...calibration.tempering import MIN_VALIDATION_POINTS
from ...regulariser.fit import Judged, Regulariser
from ..data import folds_of
from ..pool import log_density, pooled
from ..score import MAX_FACTOR, Calibration, Predictions, num_partitions
from ..summary import UNSEEN
from .candidate import best_of
from .gaussian import GaussianCandidates
from .gaussian_candidate import GaussianCandidate
from .refits import predict_without

MAX_ROWS_OF_REFITS = 2000
"""Of more rows, those that hyper-parameters have not seen are predicted in closed form."""

MAX_ROWS_OF_NESTED = 1000
"""Up to this number of rows the recipe's predictors are fitted without each two folds: of more rows
a single one hardly changes the predictions at others."""


def predictions_of(
    tried: GaussianCandidates, candidates: Sequence[GaussianCandidate]
) -> list[Predictions]:
    """Return predictions of each candidate at rows that it has not seen."""
    N = len(tried.data.X)
    if N > MAX_ROWS_OF_REFITS:
        return [_of_others(tried, candidate) for candidate in candidates]
    R, Y = num_partitions(N), tried.data.responses
    nothing: AnyNDArray = np.empty((R, *Y.shape), Y.dtype)
    found = [Predictions(nothing.copy(), nothing.copy(), Y) for _ in candidates]
    progress.now(f"predictions of each fold of {N} rows by fits to the others")
    for r in range(R):
        for given, held, means in _folds(tried, r, any(each.is_around for each in candidates)):
            for candidate, predictions in zip(candidates, found, strict=True):
                mean, variance = predict_without(tried, candidate, given, held, means)
                predictions.mean[r, held], predictions.variance[r, held] = mean, variance
    return found


def judged(
    predictions: Predictions, *, tails: bool, max_factor: float = MAX_FACTOR
) -> tuple[Judged, Calibration]:
    """Return what predictions of unseen rows say of a candidate."""
    calibration = Calibration.of(predictions, tails=tails, max_factor=max_factor)
    no_grid = np.full(predictions.Y.shape[1], np.inf)
    as_it_is = Calibration(np.ones_like(calibration.factor), None)
    before, after = (
        -float(np.mean(each.log_densities(predictions, no_grid)))
        for each in (as_it_is, calibration)
    )
    return (
        Judged(calibration.factor, calibration.df, len(predictions.Y), before, after),
        calibration,
    )


MAX_GAP_OF_POOL = 0.3
"""A candidate that the screening says is worse by more nats has no refits."""

MAX_CANDIDATES = 4
"""The largest number of candidates in a pool, beside a constant and a linear function."""


class Member(NamedTuple):
    """A part of a pool."""

    weight: float
    regulariser: Regulariser


def pool(tried: GaussianCandidates) -> list[Member]:
    """Return the candidates that predict best together, the one of the largest weight first.

    There is one alone where the others gain nothing.
    """
    fitted = sorted(tried.fitted(), key=lambda each: each.nll)
    near = [each for each in fitted if each.nll < fitted[0].nll + MAX_GAP_OF_POOL]
    candidates = [*tried.floor(), *near[:MAX_CANDIDATES]]
    unseen = predictions_of(tried, candidates)
    results = [judged(each, tails=tried.settings.has_heavy_tails) for each in unseen]
    log_densities = np.array(
        [
            calibration.log_densities(each, tried.spacing)
            for each, (_, calibration) in zip(unseen, results, strict=True)
        ]
    )
    weights = pooled(log_densities)
    constant = float(np.sum(np.log(tried.data.units[1].scale)))
    for candidate, weight, density in zip(candidates, weights, log_densities, strict=True):
        progress.now(candidate.name + UNSEEN)
        progress.found(nll_unseen=constant - float(np.mean(density)), weight=float(weight))
    progress.now("the weights of candidates")
    progress.found(promised=constant - log_density(weights, log_densities))
    order = np.argsort(-weights)
    _warn_of_factor(results[order[0]][1])
    return [
        Member(
            float(weights[c]),
            tried.finished(candidates[c])._replace(judged=results[c][0]),
        )
        for c in order
        if weights[c] > 0.0
    ]


def best(tried: GaussianCandidates) -> Regulariser:
    """Return the one candidate that the screening says is best, judged."""
    found = best_of(tried.fitted())
    if len(tried.data.X) < MIN_VALIDATION_POINTS:
        return tried.finished(found)
    (unseen,) = predictions_of(tried, [found])
    # There is no other candidate: predictions that are much too certain are widened.
    result, calibration = judged(
        unseen, tails=tried.settings.has_heavy_tails, max_factor=tempering.MAX_FACTOR
    )
    _warn_of_factor(calibration)
    return tried.finished(found)._replace(judged=result)


def _warn_of_factor(calibration: Calibration) -> None:
    """Warn if what predicts was much too certain."""
    factor = float(np.max(calibration.factor))
    if factor > 0.99 * MAX_FACTOR:
        warnings.warn(
            f"squared errors of rows that were left out are {factor:.3g} times their variance or "
            "more, so that predictions are not to be relied on. Check the rows for mistakes, give "
            "another kernel or noise, or loss='robust'.",
            NumericsWarning,
            stacklevel=2,
        )


def _of_others(tried: GaussianCandidates, candidate: GaussianCandidate) -> Predictions:
    """Return predictions in closed form at the rows that hyper-parameters have not seen."""
    first = slice(tried.settings.max_rows, None)
    mean, variance, Y = candidate.left_out
    return Predictions(mean[:, first], variance[:, first], Y[first])


def _folds(
    tried: GaussianCandidates, partition: int, with_means: bool
) -> list[tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
    """Return the rows to fit to, those to predict, and means that have not seen either."""
    data, predictors = tried.data, tried.predictors
    seed = data.seed + partition
    K = min(tried.settings.num_folds, int(np.max(tried.groups)) + 1)
    is_nested = tried.is_recipe and len(data.X) <= MAX_ROWS_OF_NESTED
    if with_means and is_nested and partition:
        predictors = predictors.of_partition(seed)
    fold = predictors.fold if with_means else folds_of(tried.groups, K, seed)
    found = []
    for k in range(K):
        given, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        if not with_means:
            means = np.zeros([len(data.X), predictors.num_means, data.J])
        elif is_nested:
            means = predictors.unseen(k)
        else:
            means = tried.means_at(data)
        found.append((given, held, means))
    return found

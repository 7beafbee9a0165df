"""The comparison of candidates: by fits without the rows that they predict.

The groups of rows are parted into folds. For each fold hyper-parameters are fitted once more to the
other rows, from where all rows have brought them, predictors are those that have not seen the fold
either, and P is conditioned as it will be in the end. With many rows under Gaussian
noise hyper-parameters are fitted to a part, and the others are predicted in closed form.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from gpflow.base import AnyNDArray

from .._core import progress
from ..calibration import tempering
from ..errors import NumericsWarning
from ..regulariser.fit import Regulariser
from .candidates import Fits, Fitted, best_of, near_best, regulariser, title
from .pool import log_density, pooled
from .row_facts import folds_of
from .score import MAX_FACTOR, Predictions, Score, constant_nll, score, warn_of_useless
from .search import floor, forget_grid, in_full, search
from .summary import UNSEEN


class Member(NamedTuple):
    """A part of a pool."""

    weight: float
    regulariser: Regulariser
    by: Fits
    """The fits that it is from."""


def members(scales: Sequence[Fits], *, is_free: bool, mixes: bool, judges: bool) -> list[Member]:
    """Return the candidates that predict best together, the one of the largest weight first.

    :param scales: how they are fitted to y, and to log y where that is tried.
    :param is_free: whether a constant and a linear function may be taken, too.
    :param mixes: whether several may be taken, where one alone is not as good.
    :param judges: whether there are fits without some of the rows.
    """
    of_y, *others = scales
    recipe, had_grid = of_y.recipe, of_y.has_grid
    found = search(of_y)
    for fits in others:
        if had_grid and not of_y.has_grid:  # candidates of all scales are compared in the same way
            forget_grid(fits)
        found += search(fits, decides=False)
    if not judges:
        best = in_full(best_of(found))
        return [Member(1.0, regulariser(best.by, best.candidate), best.by)]
    near = near_best(found, recipe.gap_of_pool, recipe.max_candidates)
    candidates = [in_full(each) for each in near]
    if is_free:
        candidates = [*(each for fits in scales for each in floor(fits)), *candidates]
    predictions = [each for fits in scales for each in unseen(fits, _of(fits, candidates))]
    candidates = [each for each, _ in predictions]
    # Where there is no other candidate, predictions that are much too certain are widened.
    max_factor = MAX_FACTOR if is_free else tempering.MAX_FACTOR
    scores = [_score(*each, max_factor) for each in predictions]
    log_densities = np.array([each.log_densities for each in scores])
    weights = np.eye(len(scores))[np.argmax(np.mean(log_densities, axis=1))]
    if mixes:
        weights = pooled(log_densities, recipe)
    _tell(scales[0], candidates, weights, log_densities, warns=not is_free)
    order = np.argsort(-weights)
    _warn_of_factor(scores[order[0]], predictions[order[0]][1])
    return [
        Member(float(weights[c]), regulariser(by, candidates[c].candidate, scores[c].judged), by)
        for c in order
        if weights[c] > 0.0
        for by in [candidates[c].by]
    ]


def _of(fits: Fits, found: Sequence[Fitted]) -> list[Fitted]:
    return [each for each in found if each.by is fits]


def unseen(fits: Fits, found: Sequence[Fitted]) -> list[tuple[Fitted, Predictions]]:
    """Return candidates with their predictions of rows that they have not seen.

    Few rows are partitioned several times, as a single partition would decide by chance; candidates
    that are much worse by the first one are left out of the others.
    """
    if fits.has_closed_form or not found:
        return [(each, each.left_out.beyond(fits.settings.max_rows)) for each in found]
    N, recipe = len(fits.rows_of_scores), fits.recipe
    progress.now(f"predictions of each fold of {N} rows by fits to the others")
    result = _of_partition(fits, found, 0)
    if recipe.few_rows >= N:
        nlls = [_score(*each, MAX_FACTOR).judged.nll_after for each in result]
        near = np.flatnonzero(np.array(nlls) < np.min(nlls) + recipe.gap_of_pool)
        for r in range(1, recipe.num_partitions):
            again = _of_partition(fits, [found[c] for c in near], r)
            for c, (each, predictions) in zip(near, again, strict=True):
                result[c] = each, result[c][1].and_of(predictions)
    return result


def _of_partition(
    fits: Fits, found: Sequence[Fitted], partition: int
) -> list[tuple[Fitted, Predictions]]:
    """Return candidates with their predictions of each fold of a partition."""
    rows, J = fits.rows_of_scores, fits.data.J
    nothing: AnyNDArray = np.empty((1, len(rows), J), fits.data.X.dtype)
    observed = fits.observed[rows], fits.data.X[rows]
    result = [
        Predictions(nothing.copy(), nothing.copy(), *observed, each.left_out.freedom)
        for each in found
    ]
    for given, held, means in _folds(fits, found, partition):
        at = np.flatnonzero(np.isin(rows, held))
        for each, predictions in zip(found, result, strict=True):
            mean, variance = fits.predict_without(each.candidate, given, rows[at], means)
            predictions.mean[0, at], predictions.variance[0, at] = mean, variance
    return list(zip(found, result, strict=True))


def _folds(
    fits: Fits, found: Sequence[Fitted], partition: int
) -> Iterator[tuple[AnyNDArray, AnyNDArray, AnyNDArray]]:
    """Yield the rows to fit to, those to predict, and means that have not seen either.

    Predictors that have no weight in any of the candidates are not fitted again: their means are 0.
    """
    data, predictors = fits.data, fits.predictors
    seed = data.seed + partition
    K = min(fits.settings.num_folds, int(np.max(fits.groups)) + 1)
    is_nested = not fits.has_given_predictors and len(data.X) <= fits.recipe.max_rows_of_nested
    used = np.unique(np.concatenate([each.used for each in found]))
    with_means = len(used) > 0 or fits.has_given_predictors
    if with_means and is_nested:
        predictors = predictors.only(used)
        if partition:
            predictors = predictors.of_partition(seed)
    fold = predictors.fold if with_means else folds_of(fits.groups, K, seed)
    means: AnyNDArray = np.zeros([len(data.X), fits.predictors.num_means, data.J], data.X.dtype)
    for k in range(K):
        if with_means and is_nested:
            means[:, used] = predictors.unseen(k)
        elif with_means:
            means = fits.means
        yield np.flatnonzero(fold != k), np.flatnonzero(fold == k), means


def _score(found: Fitted, unseen: Predictions, max_factor: float) -> Score:
    """Return the score of a candidate, its densities in original units."""
    fits, rows = found.by, found.by.rows_of_scores
    of_model = score(
        found.candidate.likelihood,
        unseen,
        spacing=fits.spacing[rows],
        tails=fits.settings.has_heavy_tails,
        max_factor=max_factor,
    )
    return of_model._replace(log_densities=of_model.log_densities + fits.log_derivative[rows])


def _tell(
    fits: Fits,
    found: Sequence[Fitted],
    weights: AnyNDArray,
    log_densities: AnyNDArray,
    *,
    warns: bool,
) -> None:
    """Say what the scores are, and warn where they are worse than those of a constant.

    :param fits: those to y.
    :param warns: whether there is no constant among the candidates.
    """
    for each, weight, density in zip(found, weights, log_densities, strict=True):
        progress.now(title(each.by, each.candidate) + UNSEEN)
        progress.found(nll_unseen=-float(np.mean(density)), weight=float(weight))
    progress.now("the weights of candidates")
    promised = -log_density(weights, log_densities)
    of_constant = constant_nll(fits.likelihood, fits.observed, fits.spacing)
    of_constant -= float(np.mean(fits.log_derivative))
    progress.found(promised=promised, of_constant=of_constant)
    if warns:
        warn_of_useless(weights @ log_densities, of_constant, fits.recipe)


def _warn_of_factor(best: Score, unseen: Predictions) -> None:
    """Warn if what predicts was much too certain."""
    factor = float(np.max(best.judged.factor / unseen.expected_factor))
    if best.is_of_errors and factor > 0.99 * MAX_FACTOR:
        warnings.warn(
            f"squared errors of rows that were left out are {factor:.3g} times their variance or "
            "more, so that predictions are not to be relied on. Check the rows for mistakes, give "
            "another kernel or noise, or loss='robust'.",
            NumericsWarning,
            stacklevel=2,
        )

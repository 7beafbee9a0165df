"""The candidates for P, found by a screening: kernels, then predictors, then noise that varies."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np
from gpflow.kernels import Kernel

from .._core import progress
from ..kernels.structure import structure_of
from ..regulariser.lbfgs import Minimise
from .candidates import MIN_NOISE, Candidate, Fits, Fitted, best_of, near_best, title
from .noise import varying


def search(fits: Fits, *, decides: bool = True) -> list[Fitted]:
    """Return fits of all candidates, of which the screening says how good they are.

    :param decides: whether they tell if y was rounded to the grid that it is on.
    """
    kernels = fits.settings.kernels_for(fits.data)
    found = _of_kernels(fits, kernels)
    if decides and fits.has_grid and not _is_of_rounding(fits, best_of(found)):
        forget_grid(fits)
        found = _of_kernels(fits, kernels)
    series = fits.recipe.kernels_of_series(fits.data) if fits.takes_series else ()
    if series:
        of_series = _of_kernels(fits, series)
        if best_of(of_series).nll < best_of(found).nll - fits.recipe.min_gain_of_series:
            found = of_series
    if not fits.has_given_predictors:
        fits.keep_useful_predictors(best_of(found))
    if fits.predictors.num_means:
        near = _near(fits, found)
        around = [fitted(fits, fits.around(each), fits.minimise_briefly) for each in near]
        least, pairs = fits.recipe.min_gain_of_predictors, zip(near, around, strict=True)
        useful = [each for alone, each in pairs if each.used.size and alone.nll - each.nll > least]
        found = around if fits.has_given_predictors else [*found, *useful]
    noise = fits.settings.noise
    if noise != "constant":
        vary = [each for near in _near(fits, found) for each in _with_varying_noise(fits, near)]
        found = (vary or found) if noise == "varying" else [*found, *vary]
    return found


def floor(fits: Fits) -> list[Fitted]:
    """Return a constant and a linear function, below which no other candidate may fall.

    Few rows suffice for their few hyper-parameters.
    """
    few = fits.on_first(fits.recipe.few_rows)
    found: dict[Hashable, Candidate] = {}
    for start in map(few.candidate, fits.recipe.floor(fits.data)):
        fit = few.fit(start, few.first, few.minimise_briefly).copied()
        if not found.get(start.family, fit).loss < fit.loss:
            found[start.family] = fit
    return [fits.screened(each) for each in found.values()]


def in_full(found: Fitted) -> Fitted:
    """Return a fit that ends at an optimum: the screening does not need one, predictions do."""
    if not found.is_early:
        return found
    return fitted(found.by, found.candidate, found.by.minimise, verb="fitted in full to")


def fitted(
    fits: Fits,
    start: Candidate,
    minimise: Minimise,
    *,
    is_early: bool = False,
    verb: str = "fitted to",
) -> Fitted:
    """Return the fit of a candidate, and what the screening says of it.

    :param minimise: one of those of the fits.
    :param is_early: whether it is to be fitted in full if it is among the best.
    :param verb: what is done with the rows, in a report.
    """
    if start.is_around:
        fits.means  # noqa: B018  (cross-fitting is a stage of its own)
    progress.now(f"{title(fits, start)}, {verb} {len(fits.first)} rows")
    found = fits.screened(fits.fit(start, fits.first, minimise).copied())
    progress.found(nll=found.nll)
    return dataclasses.replace(found, is_early=is_early and fits.screens_early)


def _is_of_rounding(fits: Fits, found: Fitted) -> bool:
    """Return True unless rows left out are predicted far better than rounding to a grid allows.

    Each of them is nearer to its own value then than to any other, too. Values that were set, as
    the levels of an experiment, are on a grid as well: they may be predicted far better than one
    that was rounded, and then all candidates would have the same mass.
    """
    away = np.abs(found.left_out.Y - found.mean) / fits.spacing[: len(found.mean)]  # in δ
    most = fits.recipe.max_error_of_grid / np.sqrt(12.0)
    return bool(np.any(np.sqrt(np.mean(np.square(away), axis=0)) > most) or np.max(away) > 0.5)


def forget_grid(fits: Fits) -> None:
    """Let noise be less than that of rounding, and compare candidates by densities of y."""
    fits.has_grid, fits.spacing = False, np.full_like(fits.spacing, np.inf)
    fits.bounds_of_noise = MIN_NOISE, fits.bounds_of_noise[1]
    fits.likelihood = fits.noise_above(MIN_NOISE)


def _near(fits: Fits, found: list[Fitted]) -> list[Fitted]:
    return near_best(found, fits.recipe.gap)


def _of_kernels(fits: Fits, kernels: Sequence[Kernel]) -> list[Fitted]:
    """Return the fits of the promising kernels, each from the best of its starts.

    Kernels that differ in the inputs that are taken as logarithms are starts of one.
    """
    if len(kernels) == 1:
        return [fitted(fits, fits.candidate(kernels[0]), fits.minimise)]
    few = fits.on_first(fits.recipe.few_rows)
    families = [structure_of(kernel, logs=False) or kernel for kernel in kernels]
    are_starts = few is not fits or len(set(families)) < len(families)
    of_family: dict[Hashable, list[Fitted]] = collections.defaultdict(list)
    for family, kernel in zip(families, kernels, strict=True):
        verb = "started with" if are_starts else "fitted to"
        start = few.candidate(kernel)
        fit = fitted(few, start, few.minimise_briefly, is_early=True, verb=verb)
        of_family[family].append(fit)
    best = [best_of(each) for each in of_family.values()]
    if not are_starts:
        return best
    promising = near_best(best, fits.recipe.gap_of_starts)
    minimise = fits.minimise_briefly if fits.screens_early else fits.minimise
    return [fitted(fits, each.candidate, minimise, is_early=True) for each in promising]


def _with_varying_noise(fits: Fits, constant: Fitted) -> list[Fitted]:
    """Return fits with noise in the pattern of the errors, if they have one.

    Where little noise is found f is known better, and so are the errors, and its kinks: the pattern
    is learned once more, and of a single feature there is a rough kernel, too. The second pattern
    is better mostly, so that few iterations suffice for the first.
    """
    first = varying(fits, constant)
    if first is None:
        return []
    found = [fitted(fits, first, fits.minimise_briefly, is_early=True)]
    again = varying(fits, found[0])
    if again is not None:
        found = [best_of([*found, fitted(fits, again, fits.minimise)])]
    if len(fits.data.features) == 1 and fits.settings.kernels is None:
        rough = fits.candidate(fits.recipe.rough(fits.data))
        rough = rough.replace(likelihood=found[0].candidate.likelihood)
        found.append(fitted(fits, rough, fits.minimise_briefly))
    return found

"""The quality of predictions of rows that no part of a fit has seen."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.likelihoods import Gaussian, Likelihood
from scipy import stats

from ..calibration.tails import expected_factor, scale_and_degrees_of_freedom
from ..calibration.tempering import factors
from ..errors import NumericsWarning
from ..likelihoods import are_labels, is_gaussian
from ..losses import Marginals
from ..regulariser.expectations import log_predictive_densities
from ..regulariser.fit import Judged
from .recipe import Recipe

MIN_DENSITY = 1e-300
"""The smallest probability of a value on a grid, whose logarithm is finite."""

MAX_FACTOR = 5.0
"""A larger factor of variances says that P is wrong, which no factor mends."""

MIN_FACTOR = 1e-3
"""A small factor is that of a function without noise that is smoother than the prior has it."""


class Predictions(NamedTuple):
    """Predictions of rows by what was fitted without them.

    Under Gaussian noise they are of observations, noise included, else of f.
    """

    mean: AnyNDArray
    """For each partition: [R, N, J]."""
    variance: AnyNDArray
    """[R, N, J]."""
    Y: AnyNDArray
    """The observations: [N, P]."""
    X: Any = None
    """The rows, [N, D], where the likelihood needs them."""
    freedom: AnyNDArray | None = None
    """The degrees of freedom of the variance, [J], as of an estimate by few rows; None for many."""

    @property
    def squares(self) -> AnyNDArray:
        """The squared errors in units of the variance: [R, N, J]."""
        return np.square(self.Y - self.mean) / self.variance

    @property
    def expected_factor(self) -> AnyNDArray | float:
        """The factor of the variance that few rows explain, [J]; 1 for many."""
        if self.freedom is None:
            return 1.0
        return np.array([expected_factor(each, len(self.Y)) for each in self.freedom])

    def beyond(self, count: int | None) -> Predictions:
        """Return those of all but the first rows."""
        mean, variance, Y, X, _ = self
        X = None if X is None else X[count:]
        return Predictions(mean[:, count:], variance[:, count:], Y[count:], X)

    def and_of(self, other: Predictions) -> Predictions:
        """Return those of other partitions of the same rows, too."""
        mean, variance = (np.concatenate(parts) for parts in zip(self[:2], other[:2], strict=True))
        return self._replace(mean=mean, variance=variance)


class Score(NamedTuple):
    """The score of a candidate by its predictions of unseen rows."""

    judged: Judged
    log_densities: AnyNDArray
    """For each observation, calibrated, averaged over partitions: [N]."""
    is_of_errors: bool = True
    """Whether the factor is that of squared errors, and not one of f."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The parameters that make predictions as wide as their errors: y ~ m + √(α v) t_ν."""

    factor: AnyNDArray
    """α: [J]."""
    df: AnyNDArray | None
    """ν: [J]; None for a Gaussian law."""

    @classmethod
    def of(
        cls, predictions: Predictions, *, tails: bool, max_factor: float = MAX_FACTOR
    ) -> Calibration:
        """Return the factor, and the tails, of the greatest posterior density."""
        bounds = MIN_FACTOR, max_factor
        columns = np.moveaxis(predictions.squares, -1, 0)  # [J, R, N]
        if not tails:
            factor = np.mean(columns, axis=(1, 2))
            return cls(np.clip(factor, *bounds), None)
        freedom = predictions.freedom
        known = np.full(len(columns), np.inf) if freedom is None else freedom
        found = [
            scale_and_degrees_of_freedom(column, bounds, most)
            for column, most in zip(columns, known, strict=True)
        ]
        factor, df = np.array(found, predictions.Y.dtype).T
        return cls(factor, df)

    def log_densities(self, predictions: Predictions, spacing: AnyNDArray) -> AnyNDArray:
        """Return the log density of each observation, averaged over partitions: [N].

        For values on a grid it is that of the interval that was rounded to the value, whose
        probability a spike at the value does not raise above one.

        :param spacing: δ of each observation, ∞ where there is no grid: [N, J].
        """
        scale = np.sqrt(self.factor * predictions.variance)  # [R, N, J]
        error = predictions.Y - predictions.mean
        total = np.zeros(predictions.mean.shape[:2])
        for j, delta in enumerate(spacing.T):
            law = self._law(j)
            e, s = error[..., j], scale[..., j]
            if np.all(np.isfinite(delta)):
                # In the lower tail, where differences are exact.
                upper, lower = (delta / 2 - np.abs(e)) / s, (-delta / 2 - np.abs(e)) / s
                mass = np.maximum(law.cdf(upper) - law.cdf(lower), MIN_DENSITY)
                total += np.log(mass / delta)
            else:
                total += law.logpdf(e / s) - np.log(s)
        return np.mean(total, axis=0)

    def _law(self, j: int) -> stats.distributions.rv_frozen:
        """Return the law of errors in units of their standard deviation."""
        if self.df is None:
            return stats.norm()
        return stats.t(self.df[j], scale=np.sqrt((self.df[j] - 2.0) / self.df[j]))


def degrees_of_freedom(noise: AnyNDArray, variance: AnyNDArray) -> AnyNDArray:
    """Return ν of an estimate of the variance v = v_f + σ² of a new observation: [J].

        1/ν = average of (v_f/v)²/γ + (σ²/v)²/(N - γ),    γ = Σ_n v_f/v

    (Satterthwaite 1946, "An approximate distribution of estimates of variance components"). N rows,
    less the one that the mean of Y takes, determine γ parameters of f, and leave N - γ for the
    noise (MacKay 1992, "Bayesian interpolation").

    :param noise: σ² at each row, [N, J].
    :param variance: v of each row, given all others, [N, J].
    """
    of_noise = np.clip(noise / variance, 0.0, 1.0)
    rows = 1.0 - 1.0 / len(noise)
    left, used = rows * np.sum(of_noise, axis=0), rows * np.sum(1.0 - of_noise, axis=0)
    parts = zip((of_noise, 1.0 - of_noise), (left, used), strict=True)
    with np.errstate(invalid="ignore"):
        each = [np.mean(np.square(of), axis=0) / count for of, count in parts]
    return 1.0 / np.sum(np.nan_to_num(each), axis=0)


@functools.singledispatch
def score(
    likelihood: Likelihood,
    predictions: Predictions,
    *,
    spacing: AnyNDArray,
    tails: bool,
    max_factor: float,
) -> Score:
    """Return the factor of the variance of f that predicts best, and the densities with it.

    :param likelihood: p(y | f), as it was fitted to all rows.
    :param predictions: those of f.
    :param spacing: δ of each observation, under Gaussian noise: [N, J].
    :param tails: whether errors may have heavy tails, under Gaussian noise.
    :param max_factor: the largest factor of squared errors, under Gaussian noise.
    """
    X, Y = predictions.X, predictions.Y
    moments = map(tf.constant, (predictions.mean, predictions.variance))
    parts = list(zip(*map(tf.unstack, moments), strict=True))
    found = [factors(likelihood, Marginals(X, m, v, Y)) for m, v in parts]
    factor = np.exp(np.mean(np.log(found), axis=0))  # [J]

    def log_densities(scale: Any) -> AnyNDArray:
        each = [log_predictive_densities(likelihood, X, m, scale * v, Y) for m, v in parts]
        return np.mean(each, axis=0)

    before, after = log_densities(1.0), log_densities(factor)
    means = -float(np.mean(before)), -float(np.mean(after))
    return Score(Judged(factor, None, len(Y), *means), after, is_of_errors=False)


@score.register
def _(
    likelihood: Gaussian,
    predictions: Predictions,
    *,
    spacing: AnyNDArray,
    tails: bool,
    max_factor: float,
) -> Score:
    """Return the factor of squared errors, their tails, and the densities with both."""
    calibration = Calibration.of(predictions, tails=tails, max_factor=max_factor)
    no_grid = np.full(predictions.Y.shape, np.inf)
    as_it_is = Calibration(np.ones_like(calibration.factor), None)
    means = [
        -float(np.mean(each.log_densities(predictions, no_grid)))
        for each in (as_it_is, calibration)
    ]
    judged = Judged(calibration.factor, calibration.df, len(predictions.Y), *means)
    return Score(judged, calibration.log_densities(predictions, spacing))


def constant_nll(likelihood: Likelihood, Y: AnyNDArray, spacing: AnyNDArray) -> float:
    """Return the negative log density of rows by what the others have in common; ∞ if not known.

    For labels it follows from their frequencies, with half a row added to each class.

    :param likelihood: p(y | f).
    :param Y: observations, [N, P].
    :param spacing: δ of each observation, ∞ where there is no grid: [N, P].
    """
    if are_labels(likelihood):
        _, counts = np.unique(Y, return_counts=True)
        others = (counts - 0.5) / (np.sum(counts) - 1.0 + 0.5 * len(counts))
        return -float(np.sum(counts * np.log(others)) / np.sum(counts))
    if not is_gaussian(likelihood):
        return np.inf
    N, shape = len(Y), (1, *Y.shape)
    left = (Y - np.mean(Y, axis=0)) * N / max(N - 1, 1)
    variance = np.broadcast_to(np.var(Y, axis=0) * (N + 1) / max(N - 1, 1), shape)
    predictions = Predictions((Y - left)[None], variance, Y)
    known = Calibration(np.ones(Y.shape[1]), None)
    return -float(np.mean(known.log_densities(predictions, spacing)))


def warn_of_useless(
    log_densities: AnyNDArray, of_constant: float, recipe: Recipe, shift: float = 0.0
) -> None:
    """Warn where rows that were left out are predicted worse than by a constant.

    :param log_densities: that of each row, [N].
    :param of_constant: the negative log density by what the rows have in common, in their units.
    :param recipe: says by how much.
    :param shift: what both are shifted by in original units.
    """
    found = -float(np.mean(log_densities))
    standard_error = float(np.std(log_densities)) / np.sqrt(len(log_densities))
    chance = recipe.standard_errors * standard_error
    if found - of_constant > max(recipe.max_loss_beside_constant, chance):
        warnings.warn(
            f"rows that were left out are predicted worse than without any inputs: the negative "
            f"log density is {found + shift:.3g}, that of a constant {of_constant + shift:.3g}. "
            "Predictions are not to be relied on: check the rows, or leave out what was chosen.",
            NumericsWarning,
            stacklevel=2,
        )

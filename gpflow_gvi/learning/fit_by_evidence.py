"""Fits under Gaussian noise: by the exact evidence of not too many rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.functions import Zero
from gpflow.likelihoods import Gaussian, Likelihood
from scipy.optimize import nnls

from .._core.graphs import deepcopy
from ..gaussian_process import GaussianProcess
from ..kernels.numpy_parameters import value_of
from ..regulariser.conditioning import predictions
from ..regulariser.evidence import InducingEvidence, titsias_gap
from ..regulariser.evidence_fit import EvidenceFit, Rows
from ..regulariser.exact_evidence import exact_predictions
from ..regulariser.lbfgs import Minimise
from ..regulariser.leave_one_out import leave_one_out, leave_one_out_of_all
from .candidates import MIN_NOISE, Candidate, Fits, Fitted, prior, scaled
from .noise import VaryingNoise, noise_at
from .predictors import CrossFits
from .score import MAX_FACTOR, MIN_FACTOR, Predictions, degrees_of_freedom
from .settings import Settings
from .start import TrainingData


class EvidenceFits(Fits):
    """Fits under Gaussian noise."""

    screens_early = True

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        self._fits: dict[Hashable, EvidenceFit] = {}
        super().__init__(data, settings)
        self.mean, self.observed = Zero(data.J), data.responses
        self._is_centred = settings.standardise
        self.has_grid = bool(np.all(np.isfinite(self.spacing)))
        self.has_closed_form = len(data.X) > self.recipe.max_rows_of_refits
        # The variance of what was rounded away, where that of an output is known.
        rounded = float(np.min(np.mean(np.square(self.spacing), axis=0))) / 12.0
        lower = max(MIN_NOISE, rounded if np.isfinite(rounded) else 0.0)
        variance = float(np.max(np.var(data.responses, axis=0)))
        self.bounds_of_noise = lower, self.recipe.max_variance * variance
        self.noise_above = functools.partial(_noise_above, settings, data)
        self.likelihood = self.noise_above(lower)
        self.minimise = self.settings.minimise
        self.minimise_briefly = self.settings.briefly(len(data.features))
        self.takes_series = self.settings.kernels is None
        rows = np.arange(len(data.X))[: self.recipe.max_rows_of_scores]
        self.rows_of_scores = rows[self.settings.max_rows :] if self.has_closed_form else rows

    def on_first(self, num_rows: int) -> Fits:
        """Return fits to the first rows, among which more features may be constant."""
        found = super().on_first(num_rows)
        found.minimise_briefly = self.settings.briefly(len(found.data.features))
        return found

    def _cross_fits(self, estimators: Sequence[Any]) -> CrossFits:
        targets = np.asarray(self.data.units[1].linear.original(self.data.responses))
        return self.cross_fit(estimators, self.data, targets)

    def fit(
        self,
        start: Candidate,
        rows: AnyNDArray,
        minimise: Minimise,
        means: AnyNDArray | None = None,
    ) -> Candidate:
        """Return a candidate with the hyper-parameters of the greatest evidence of some rows."""
        fit, noise = self._evidence_fit(start), start.noise
        given, exponent = start.likelihood.variance, 0.0 if self.data.weights is None else 1.0
        if noise is not None:
            given = max(float(value_of(noise.variance)), 1.001 * self.bounds_of_noise[0])
            exponent = float(value_of(noise.exponent))
        fit.start(start.kernel, given, start.weights, exponent)
        at = self._rows(start, rows, means)
        loss = fit.minimise(
            minimise,
            at.X,
            at,
            means=start.is_around and self.fits_weights,
            pattern=noise is not None,
        )
        likelihood: Likelihood = fit.likelihood
        if noise is not None:
            values = value_of(fit.variance), value_of(fit.exponent)
            varying = VaryingNoise(noise.pattern, *values, self.bounds_of_noise)
            likelihood = Gaussian(varying, variance_lower_bound=self.bounds_of_noise[0])
        return start.replace(
            kernel=fit.prior.kernel,
            likelihood=likelihood,
            weights=fit.weights.numpy() if start.is_around else None,
            loss=loss,
        )

    def _evidence_fit(self, start: Candidate) -> EvidenceFit:
        """Return the fit of kernels like this one, whose graph, if it needs one, is traced once."""
        key = start.family, self.bounds_of_noise
        if key not in self._fits:
            self._fits[key] = EvidenceFit(
                GaussianProcess(Zero(self.data.J), deepcopy(start.kernel)),
                deepcopy(self.likelihood if start.noise is not None else start.likelihood),
                InducingEvidence(),  # with a point at each row
                features=[self.data.D],
                num_outputs=self.data.J,
                num_means=self.predictors.num_means,
            )
        return self._fits[key]

    def _rows(self, candidate: Candidate, rows: AnyNDArray, means: AnyNDArray | None) -> Rows:
        """Return the rows that the evidence is computed from."""
        data, noise, X = self.data, candidate.noise, self.data.X[rows]
        if not candidate.is_around:
            means = np.zeros([len(X), self.predictors.num_means, data.J])
        else:
            means = (self.means if means is None else means)[rows]
        ratio = data.relative_noise[rows] if noise is None else noise.ratio(X)
        return Rows(X, data.responses[rows], means.astype(X.dtype), ratio)

    def screened(self, candidate: Candidate) -> Fitted:
        """Return a fitted candidate with its predictions of each group of rows from all others."""
        data, N = self.data.first(self.recipe.max_rows_of_scores), len(self.data.X)
        observed, groups = (data.X, data.responses), self.groups[: len(data.X)]
        P, noise = prior(candidate, self.predictors), noise_at(candidate, data)
        found: Any = None
        if self.recipe.max_rows_of_points >= N:
            found = leave_one_out_of_all(P, noise, observed, groups)
        if found is None:
            M = self.num_points(candidate)
            Z, _ = self.settings.points(data, M, P.kernel)
            found = leave_one_out(P, noise, Z, observed, groups)
        mean, variance = (np.asarray(part) for part in found)
        freedom = degrees_of_freedom(noise, variance)
        predictions = Predictions(mean[None], variance[None], data.responses, freedom=freedom)
        factor = np.clip(np.mean(predictions.squares[0], axis=0), MIN_FACTOR, MAX_FACTOR)
        logs = np.log(2.0 * np.pi * factor * variance) + predictions.squares[0] / factor
        nll = 0.5 * float(np.sum(np.mean(logs, axis=0)))
        nll += candidate.num_parameters / len(self.first) - float(np.mean(self.log_derivative))
        return Fitted(candidate, predictions, nll, self)

    def num_points(self, candidate: Candidate) -> int:
        """Return the number of inducing points that P is conditioned on: as many as it takes."""
        N = len(self.data.X)
        few, most = self.settings.count(N), self.settings.most_inducing(self.data.num_rows)
        if few == most:
            return few
        if self.recipe.max_rows_of_points >= N:
            return N
        X = self.data.X[self.first]
        noise = noise_at(candidate, self.data.first(len(self.first)))
        Z, _ = self.settings.select(X, few, kernel=candidate.kernel, seed=self.data.seed)
        missed = titsias_gap(candidate.kernel, noise, Z, X)
        return few if missed < self.recipe.max_missed else most

    def keep_useful_predictors(self, plain: Fitted) -> None:
        """Leave out predictors with larger errors than those of a fit without them.

        A weighted sum gains by a predictor with r times the error only if errors have a correlation
        below 1/r (Bates and Granger 1969, "The combination of forecasts"), but both have the noise
        in common. Fits without further folds are for those that may be useful by the ones before.
        """
        known, r = len(plain.mean), self.recipe.max_error_ratio
        errors: AnyNDArray = np.empty([0, self.predictors.num_means, self.data.J])
        of_plain: AnyNDArray = np.empty([0, self.data.J])
        for k in range(self.predictors.num_folds):
            if not self.predictors.num_means:
                break
            rows, values = self.predictors.of_fold(k)
            rows, values = rows[rows < known], values[rows < known]
            Y = self.data.responses[rows]
            of_plain = np.concatenate([of_plain, r * np.abs(Y - plain.mean[rows])])
            errors = np.concatenate([errors, np.abs(Y[:, None] - values)])
            if k == self.predictors.num_folds - 1:
                kept = np.mean(errors**2, axis=(0, 2)) < np.mean(of_plain**2)
            else:  # few squares say little, as the largest of them make up most of the mean
                larger = np.mean(errors - of_plain[:, None], axis=-1)  # [B, C]
                standard_error = np.std(larger, axis=0) / np.sqrt(max(len(larger), 1))
                largest = self.recipe.standard_errors_of_useless * standard_error
                kept = np.mean(larger, axis=0) <= largest
            self.predictors, errors = (
                self.predictors.only(np.flatnonzero(kept).tolist()),
                errors[:, kept],
            )
        vars(self).pop("means", None)
        self._fits.clear()  # they have as many weights as there are predictors

    def around(self, plain: Fitted) -> Candidate:
        """Return P around predictors: their weights start at those of least squares."""
        data = self.data
        weights: AnyNDArray = np.ones(self.means.shape[1:], data.X.dtype)
        if self.fits_weights:  # w ≥ 0 with Σ w ≤ 1
            columns = zip(np.moveaxis(self.means, -1, 0), data.responses.T, strict=True)
            weights = np.stack([nnls(F, y)[0] for F, y in columns], axis=1)
            weights = weights / np.maximum(np.sum(weights, axis=0), 1.0)
        left = data.responses - np.sum(weights * self.means, axis=1)
        error = float(np.mean(np.var(left, axis=0)))
        ratio = error / float(np.mean(np.var(data.responses, axis=0)))
        likelihood = deepcopy(self.likelihood)
        if likelihood.variance.trainable:
            likelihood.variance.assign(max(0.5 * max(error, 1e-4), 2.0 * self.bounds_of_noise[0]))
        kernel = scaled(plain.candidate.kernel, ratio)
        return plain.candidate.replace(kernel=kernel, likelihood=likelihood, weights=weights)

    def predict_without(
        self, candidate: Candidate, given: AnyNDArray, held: AnyNDArray, means: AnyNDArray
    ) -> MeanAndVariance:
        """Return mean and variance of held observations, noise included: [B, J] each."""
        found, N = candidate, len(self.data.X)
        if candidate.num_parameters > self.recipe.min_optimism * N:
            # The fewer the rows, the more a fold changes the optimum, and the less a fit costs.
            again = self.settings.again(len(self.data.features))
            minimise = self.minimise_briefly if self.recipe.few_rows >= N else again
            found = self.fit(candidate, given[: self.settings.max_rows], minimise, means)
        every = self._rows(found, np.arange(N), means)
        of_means = 0.0 if found.weights is None else np.sum(found.weights * every.means, axis=1)
        of_means = of_means + np.zeros_like(self.data.responses)  # [N, J]
        noise = noise_at(found, self.data)
        observed = every.X[given], noise[given], every.Y[given] - of_means[given]
        predict = functools.partial(self._predicted, found)
        if self._is_centred and not found.is_around and self.recipe.few_rows >= N:
            predict = functools.partial(_around_own_mean, predict)
        mean, variance = predict(observed, every.X[held])
        return mean + of_means[held], variance + noise[held]

    def _predicted(
        self, candidate: Candidate, observed: tuple[AnyNDArray, ...], new: AnyNDArray
    ) -> Any:
        """Return mean and variance of f at new rows, as P will be conditioned in the end.

        :param observed: rows, their noise variances, and what the means leave of Y.
        """
        X, noise, residual = observed
        M, kernel = self.num_points(candidate), candidate.kernel
        found = exact_predictions(kernel, X, noise, residual, new) if len(X) <= M else None
        if found is not None:
            return found
        Z, _ = self.settings.select(X, M, kernel=kernel, seed=self.data.seed)
        return predictions(GaussianProcess(self.mean, kernel), Z, (X, residual, noise), new)


def _around_own_mean(
    predict: Callable[..., MeanAndVariance], observed: tuple[AnyNDArray, ...], new: AnyNDArray
) -> MeanAndVariance:
    """Return mean and variance at new rows, where those observed alone tell the mean b of Y.

    Less the mean of all rows Y sums to zero, so that the others tell those held out: with more
    features than rows a line would know them. With b by generalised least squares it does not,

        b = 1ᵀS⁻¹y / 1ᵀS⁻¹1,    b + k S⁻¹(y - b),    S⁻¹y = (y - K S⁻¹y) / σ²

    :param predict: the mean is linear in Y.
    """
    X, noise, Y = observed
    every, B = np.concatenate([new, X]), len(new)
    mean, variance = predict(observed, every)
    of_ones, _ = predict((X, noise, np.ones_like(Y)), every)
    b = np.sum((Y - mean[B:]) / noise, axis=0) / np.sum((1.0 - of_ones[B:]) / noise, axis=0)
    return mean[:B] + b * (1.0 - of_ones[:B]), variance[:B]


def _noise_above(settings: Settings, data: TrainingData, lower: float) -> Likelihood:
    """Return the noise to start from, whose variance stays above a bound unless it is given."""
    if settings.likelihood is not None:
        return settings.likelihood
    if not settings.standardise:
        return Gaussian(0.1)
    recipe = settings.regulariser.recipe  # its prior is for standard units
    return recipe.noise(len(data.X), len(data.features), lower)

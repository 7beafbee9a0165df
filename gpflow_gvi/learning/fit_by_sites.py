"""Fits under a non-Gaussian likelihood, of labels or counts, by its sites.

With labels, P may be around the log probabilities of classifiers that have not seen the row; with
other observations it is around a constant.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.likelihoods import Likelihood

from .._core import labels
from .._core.data import Data
from .._core.graphs import deepcopy
from ..gaussian_process import GaussianProcess
from ..likelihoods import usable
from ..regulariser.evidence_fit import assign_all
from ..regulariser.expectations import log_predictive_densities
from ..regulariser.lbfgs import Minimise
from ..regulariser.leave_one_out import leave_one_out, leave_one_out_of_all
from ..regulariser.site_bound import Rows
from ..regulariser.site_fit import SiteFit
from ..regulariser.sites import Sites, left_out
from .candidates import Candidate, Fits, Fitted, prior, scaled
from .class_predictors import LogProbabilities
from .predictors import CrossFits
from .rows.targets import prior_mean
from .score import Predictions
from .settings import RECIPE, Settings
from .start import TrainingData


class SiteFits(Fits):
    """Fits under a likelihood that is not Gaussian."""

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        P, likelihood = settings.regulariser, settings.likelihood
        kind = type(likelihood).__name__
        J = labels.num_classes(likelihood)
        if P.noise == "varying":
            raise ValueError(
                "noise is 'varying', which is for real-valued Y under Gaussian noise; likelihood "
                f"is {kind}. Leave one of them out."
            )
        if J is None:
            if P.predictors not in (None, RECIPE):
                raise ValueError(
                    "predictor is for labels, and for real-valued Y under Gaussian noise; "
                    f"likelihood is {kind}. Leave one of them out."
                )
            P = dataclasses.replace(P, predictors=None)
        self.classes = np.arange(J or 0) if settings.classes is None else settings.classes
        self._fits: dict[Hashable, SiteFit] = {}
        P = dataclasses.replace(P, noise="constant")  # that of the likelihood
        super().__init__(data, dataclasses.replace(settings, regulariser=P))
        self.likelihood = usable(cast(Likelihood, likelihood))
        self.mean = prior_mean(likelihood, data.responses)
        self.observed = np.asarray(Data.of((data.X, data.Y), self.likelihood).Y)
        self.minimise = self.settings.of_a_round()
        self.minimise_briefly = self.settings.minimise_briefly
        self.first = self.rows_of_scores = self.first[: self.recipe.max_values_of_sites // data.J]

    def _cross_fits(self, estimators: Sequence[Any]) -> CrossFits:
        data = self.data
        wrap = functools.partial(
            LogProbabilities, inputs=data.units[0], classes=self.classes, num_latents=data.J
        )
        return self.cross_fit(estimators, data, data.Y.astype(int), wrap=wrap)

    def fit(
        self, start: Candidate, rows: AnyNDArray, minimise: Minimise, means: Any = None
    ) -> Candidate:
        """Return a candidate with the hyper-parameters of the greatest evidence of some rows."""
        fit, at = self._started(start), self._rows(start, rows, means)
        before = _of_rows(start.sites, rows)
        loss, sites = fit.fit(minimise, at, means=start.is_around, sites=before)
        bound = fit.bound
        return start.replace(
            kernel=bound.prior.kernel,
            likelihood=bound.likelihood,
            mean=bound.prior.mean_function,
            weights=bound.weights.numpy() if start.is_around else None,
            loss=loss,
            sites=sites,
        )

    def _started(self, start: Candidate) -> SiteFit:
        """Return a fit at the values of a candidate; graphs are traced for the first one alone."""
        if start.family not in self._fits:
            P = GaussianProcess(deepcopy(start.mean), deepcopy(start.kernel))
            like = next(iter(self._fits.values()), None)
            self._fits[start.family] = SiteFit(
                P, deepcopy(start.likelihood), self.predictors.num_means, like=like
            )
        fit = self._fits[start.family]
        assign_all(fit.bound.prior.kernel, start.kernel)
        assign_all(fit.bound.prior.mean_function, start.mean)
        assign_all(fit.bound.likelihood, start.likelihood)
        fit.start_weights(0.0 if start.weights is None else start.weights)
        return fit

    def _rows(
        self,
        candidate: Candidate,
        rows: AnyNDArray,
        means: AnyNDArray | None = None,
        like: Rows | None = None,
    ) -> Rows:
        """Return rows with the inducing points of others, by default some of the rows, or all."""
        if not candidate.is_around:
            means = np.zeros([len(self.data.X), self.predictors.num_means, self.data.J])
        elif means is None:
            means = self.means
        X = self.data.X[rows]
        Z = self._points(candidate, X) if like is None else like.Z
        return Rows(X, self.observed[rows], means[rows].astype(X.dtype), Z)

    def _points(self, candidate: Candidate, X: AnyNDArray) -> AnyNDArray | None:
        """Return the inducing points for rows; None if each is one."""
        M = self.settings.count(len(X))
        is_small = len(X) <= min(M, self.recipe.max_rows_of_exact_sites)
        if is_small and self._fits[candidate.family].knows(X):
            return None
        M = min(M, self.recipe.max_points_of_sites)
        return self.settings.select(X, M, kernel=candidate.kernel, seed=self.data.seed).points

    def screened(self, candidate: Candidate) -> Fitted:
        """Return a fitted candidate with its predictions of each group of rows from all others."""
        fit, rows = self._started(candidate), self.first
        at = self._rows(candidate, rows)
        sites, _ = fit.converged(at, _of_rows(candidate.sites, rows))
        P = prior(candidate, self.predictors)
        groups = np.unique(self.groups[rows], return_inverse=True)[1]
        given = P, sites.variance, (at.X, sites.Y), groups
        of_y = leave_one_out_of_all(*given) if at.Z is None else None
        if of_y is None:
            of_y = leave_one_out(*given[:2], at.X if at.Z is None else at.Z, *given[2:])
        mean, variance = (np.asarray(part) for part in left_out(of_y, sites))
        variance = np.maximum(variance, 0.0)
        f = tf.constant(mean), tf.constant(variance)
        densities = log_predictive_densities(candidate.likelihood, at.X, *f, at.Y)
        nll = candidate.num_parameters / len(rows)
        nll -= float(np.mean(densities + self.log_derivative[rows]))
        return Fitted(candidate, Predictions(mean[None], variance[None], at.Y), nll, self)

    def around(self, plain: Fitted) -> Candidate:
        """Return P around predictors, whose weights start equal."""
        C, start = self.predictors.num_means, plain.candidate
        weights: AnyNDArray = np.full((C, 1), 1.0 / C, self.data.X.dtype)
        kernel = scaled(start.kernel, self.recipe.share_of_kernel)
        return start.replace(kernel=kernel, weights=weights)

    def predict_without(
        self, candidate: Candidate, given: AnyNDArray, held: AnyNDArray, means: AnyNDArray
    ) -> MeanAndVariance:
        """Return mean and variance of f at held rows: [B, J] each."""
        given = given[np.isin(given, self.first)]
        fit, at = self._started(candidate), self._rows(candidate, given, means)
        _, sites = fit.fit(
            self.settings.again(),
            at,
            means=candidate.is_around,
            max_rounds=self.recipe.max_rounds_again,
            sites=_of_rows(candidate.sites, given),
        )
        mean, variance = fit.predict(at, sites, self._rows(candidate, held, means, like=at))
        return np.asarray(mean), np.broadcast_to(variance, mean.shape)


def _of_rows(sites: Sites | None, rows: AnyNDArray) -> Sites | None:
    """Return the sites of some of the first rows, None if there are none of them."""
    if sites is None or rows[-1] >= len(sites.Y):
        return None
    return Sites(*(np.asarray(part)[rows] for part in sites))

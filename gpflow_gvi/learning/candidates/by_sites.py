"""The candidates for the regulariser P of labels, or under any likelihood that is not Gaussian.

They are fitted by the sites of the likelihood, and judged as those under Gaussian noise are: by the
density of each observation given all the others, or, where an observation may say nothing of f,
given those of other folds. Of labels P may be around the log probabilities of classifiers that have
not seen the row; of other observations it is around a constant.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.functions import MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Likelihood,
    MultiClass,
    Ordinal,
    Poisson,
    Softmax,
)

from ..._core import labels, outputs, progress
from ..._core.data import Data
from ..._core.graphs import deepcopy
from ...covariances import gram
from ...gaussian_process import GaussianProcess
from ...kernels.structure import structure_of
from ...likelihoods import usable
from ...regulariser.conditioning import conditioned
from ...regulariser.evidence_fit import assign_all
from ...regulariser.expectations import log_predictive_densities
from ...regulariser.fit import Regulariser, Round
from ...regulariser.leave_one_out import leave_one_out
from ...regulariser.site_fit import Rows, SiteFit
from ...regulariser.sites import Sites, first_sites, left_out
from ..data import folds_of, groups_of
from ..rows.targets import prior_mean
from ..settings import Settings, recipe_predictors
from ..start import TrainingData
from ..summary import described
from .candidate import Candidate, Candidates, best_of, penalty, scaled
from .class_predictors import LogProbabilities
from .cross_fitting import CrossFits
from .kept_fits import site_fit, structure_of_likelihood

MAX_VALUES_OF_FITS = 4_000
"""Hyper-parameters are fitted to not more rows times latent functions than these."""

MAX_POINTS_OF_FITS = 100
"""Hyper-parameters are fitted at not more inducing points: a bound costs O(J N M²)."""

NUM_FOLDS = 5
"""Into which observations are parted where their density has no closed form."""

AMPLIFICATION = 2.0
"""What the variance of f is multiplied by where that predicts better."""

ALL_INFORMATIVE = (Bernoulli, Beta, Exponential, Gamma, MultiClass, Ordinal, Poisson, Softmax)
"""Likelihoods under which no observation comes to say nothing of f because of the others."""

SHARE_OF_KERNEL = 0.1
"""Of the variance of f, where a fit around classifiers starts. From all of it f would explain the
labels before the classifiers do, at an optimum of smaller evidence."""


class SiteCandidates(Candidates[Candidate]):
    """The candidates for P under a likelihood that is not Gaussian."""

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        P = settings.regulariser
        likelihood = settings.likelihood
        J = labels.num_classes(likelihood)
        if P.noise == "varying":
            raise ValueError(
                "noise is 'varying', which is for real-valued Y under Gaussian noise; likelihood "
                f"is {type(likelihood).__name__}. Leave one of them out."
            )
        if J is None and P.predictors not in (None, recipe_predictors):
            raise ValueError(
                "predictor is for labels, and for real-valued Y under Gaussian noise; likelihood "
                f"is {type(likelihood).__name__}. Leave one of them out."
            )
        if J is None:
            P = dataclasses.replace(P, predictors=None)
        self.classes = np.arange(J or 0) if settings.classes is None else settings.classes
        self._fits: dict[Hashable, SiteFit] = {}
        super().__init__(data, dataclasses.replace(settings, regulariser=P))
        self.likelihood = usable(self.likelihood)

    def best(self) -> Regulariser:
        """Return the one that predicts best."""
        kernels = list(self.settings.kernels(self.data))
        have_starts = len({structure_of(kernel) or id(kernel) for kernel in kernels}) < len(kernels)
        found = (
            self._of_starts(kernels)
            if have_starts
            else [self._fit(kernel, self.likelihood) for kernel in kernels]
        )
        best = best_of(found)
        if self.predictors.num_means:
            P = best.regulariser
            kernel = scaled(P.prior.kernel, SHARE_OF_KERNEL)
            around = self._fit(kernel, P.likelihood, means=True)
            best = best_of([best, around]) if self.is_recipe else around
        return best.regulariser

    def _of_estimators(self, estimators: Sequence[Any]) -> CrossFits:
        """Return cross-fits of classifiers."""
        data = self.data
        wrap = functools.partial(
            LogProbabilities, inputs=data.units[0], classes=self.classes, num_latents=data.J
        )
        return self._cross_fit(estimators, data, data.Y.astype(int), wrap=wrap)

    def _fit(
        self,
        kernel: Kernel,
        start: Likelihood,
        *,
        starts_of: TrainingData | None = None,
        means: bool = False,
    ) -> Candidate:
        """Return a fitted candidate."""
        settings, data = self.settings, self.data if starts_of is None else starts_of
        first = data.first(settings.max_rows).first(MAX_VALUES_OF_FITS // data.J)  # at random
        gram.require_independent_outputs(kernel)
        X, Y = Data.of((first.X, first.Y), self.likelihood)
        rows = Rows(X, Y, self.means_at(first))
        what = described(kernel, around=means, varying=False)
        start_of = "" if starts_of is None else ", a start"
        progress.now(f"{what}{start_of}, fitted to {len(X)} rows")
        fit = self._site_fit(kernel)
        with fit.lock:
            self._start(fit, kernel, start, means=means)
            for _ in range(settings.max_rounds):
                M = min(settings.count(len(data.X)), MAX_POINTS_OF_FITS)
                Z, indices = settings.select(X, M, kernel=fit.prior.kernel, seed=data.seed)
                sites = first_sites(fit.mean(rows))
                is_start = starts_of is not None
                minimise = settings.minimise_briefly if is_start else settings.of_a_round()
                loss, sites = fit.fit(minimise, Z, rows, sites, means=means)
            weights = fit.weights.numpy()
            mean = self._mean(weights) if means else deepcopy(fit.prior.mean_function)
            if isinstance(self.likelihood, ALL_INFORMATIVE):
                nll = _amplify(fit, mean, Z, rows, sites)
            else:
                nll = _held_out_nll(fit, GaussianProcess(mean, fit.prior.kernel), Z, rows)
            prior = GaussianProcess(mean, deepcopy(fit.prior.kernel))
            likelihood = deepcopy(fit.likelihood)
        fitted = Regulariser(prior, prior, likelihood, Z, None, (Round(indices, loss, {}),), True)
        nll += penalty(fitted, len(X))
        progress.found(nll=nll + float(np.sum(np.log(data.units[1].scale))), M=len(Z))
        return Candidate(fitted, nll)

    def _site_fit(self, kernel: Kernel) -> SiteFit:
        """Return the fit of kernels like this one, whose graph is traced once."""
        shape = self.predictors.num_means, self.data.D, self.data.J
        key = structure_of(kernel)
        if key is None or structure_of_likelihood(self.likelihood) is not None:
            return site_fit(kernel, self.likelihood, shape)
        if key not in self._fits:  # no other call has this likelihood
            self._fits[key] = site_fit(kernel, self.likelihood, shape)
        return self._fits[key]

    def _start(self, fit: SiteFit, kernel: Kernel, likelihood: Likelihood, *, means: bool) -> None:
        """Let a fit start from given hyper-parameters."""
        assign_all(fit.prior.kernel, kernel)
        assign_all(fit.prior.mean_function, prior_mean(likelihood, self.data.responses))
        assign_all(fit.likelihood, likelihood)
        fit.start_weights(1.0 / self.predictors.num_means if means else 0.0)


def _amplify(fit: SiteFit, mean: MeanFunction, Z: AnyNDArray, rows: Rows, sites: Sites) -> float:
    """Amplify f where that predicts better, and return the negative log density.

    The more f varies, the further the bound is below the evidence, so that the variance of its
    maximum is too small. Once only: few labels would let f be amplified without end.
    """
    kernels = [deepcopy(fit.prior.kernel), scaled(fit.prior.kernel, AMPLIFICATION)]
    nlls = []
    for kernel in kernels:
        assign_all(fit.prior.kernel, kernel)
        sites = fit.sites(Z, rows, sites)
        prior = GaussianProcess(mean, kernel)
        nlls.append(_left_out_nll(fit.likelihood, prior, Z, rows, sites))
    amplified = nlls[1] < nlls[0]
    assign_all(fit.prior.kernel, kernels[amplified])
    return nlls[amplified]


def _left_out_nll(
    likelihood: Likelihood, prior: GaussianProcess, Z: AnyNDArray, rows: Rows, sites: Sites
) -> float:
    """Return the mean negative log density of observations, each given all other groups."""
    groups = groups_of(np.asarray(rows.X))
    of_y = leave_one_out(prior, sites.variance, Z, (rows.X, sites.Y), groups)
    densities = log_predictive_densities(likelihood, rows.X, *left_out(of_y, sites), rows.Y)
    return -float(np.mean(densities))


def _held_out_nll(fit: SiteFit, prior: GaussianProcess, Z: AnyNDArray, rows: Rows) -> float:
    """Return the mean negative log density of observations, given those of the other folds.

    Which observations are outliers, or where there is much noise, is decided by all of them. Given
    the sites of the others, which know of it, an observation is predicted too well, and the better
    the more f varies. Here sites are those that the other folds have by themselves.
    """
    X, Y = np.asarray(rows.X), np.asarray(rows.Y)
    groups = groups_of(X)
    num_folds = min(NUM_FOLDS, int(np.max(groups)) + 1)
    fold = folds_of(groups, num_folds, seed=0)
    densities = []
    for k in range(num_folds):
        given, held = fold != k, fold == k
        others = Rows(X[given], Y[given], rows.means[given])
        sites = fit.sites(Z, others, first_sites(fit.mean(others)))
        posterior = conditioned(prior, Z, [(others.X, *sites)])
        mean = posterior.mean_function(X[held])
        variance = outputs.variance(posterior.kernel, X[held])
        densities.append(log_predictive_densities(fit.likelihood, X[held], mean, variance, Y[held]))
    return -float(np.mean(np.concatenate(densities)))

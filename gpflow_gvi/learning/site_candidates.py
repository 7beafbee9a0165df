"""The candidates for the regulariser P of labels, or under any likelihood that is not Gaussian.

They are fitted by the sites of the likelihood, and judged as those under Gaussian noise are: by the
density of each observation given all the others. Of labels P may be around the log probabilities
of classifiers that have not seen the row.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Module
from gpflow.config import default_float
from gpflow.functions import MeanFunction, Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Likelihood, MultiClass, Softmax
from gpflow.utilities import deepcopy, parameter_dict

from .._core import labels, progress
from .._core.data import Data
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..mean_functions.predictor import Predictor
from ..regulariser.expectations import log_predictive_densities
from ..regulariser.fit import Regulariser, Round
from ..regulariser.leave_one_out import leave_one_out
from ..regulariser.site_fit import Rows, SiteFit
from ..regulariser.sites import Sites, first_sites, left_out
from .candidates import Candidate, Candidates, best_of, penalty, scaled
from .class_predictors import LogProbabilities
from .evidence_fit import assign, kept, structure_of, structure_of_parameter
from .settings import Settings
from .start import TrainingData
from .summary import described

MAX_VALUES_OF_FITS = 4_000
"""Hyper-parameters are fitted to not more rows times latent functions than these."""

MAX_POINTS_OF_FITS = 100
"""Hyper-parameters are fitted at not more inducing points: a bound costs O(J N M²)."""

AMPLIFICATION = 2.0
"""What the variance of f is multiplied by where that predicts better."""


class SiteCandidates(Candidates):
    """The candidates for P under a likelihood that is not Gaussian."""

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        if settings.regulariser.noise == "varying":
            raise ValueError("noise is 'varying', which is for real-valued Y. Leave it out here.")
        J = labels.num_classes(settings.likelihood) or 0
        self.classes = np.arange(J) if settings.classes is None else settings.classes
        super().__init__(data, settings)

    def best(self) -> Regulariser:
        """Return the one that predicts best."""
        kernels = self.settings.kernels(self.data)
        best = best_of([self._fit(kernel, self.likelihood) for kernel in kernels])
        if self.means:
            P = best.regulariser
            around = self._fit(P.prior.kernel, P.likelihood, means=True)
            best = best_of([best, around]) if self.is_recipe else around
        return best.regulariser

    def _predictors(self, estimators: Sequence[Any]) -> list[Predictor]:
        """Return cross-fitted classifiers."""
        data = self.data
        wrap = functools.partial(
            LogProbabilities, inputs=data.units[0], classes=self.classes, num_latents=data.J
        )
        return self._cross_fit(estimators, data, data.Y.astype(int), wrap)

    def _fit(self, kernel: Kernel, start: Likelihood, *, means: bool = False) -> Candidate:
        """Return a fitted candidate.

        :param kernel: k, with the hyper-parameters to start from.
        :param start: the likelihood to start from.
        :param means: whether P is around the predictors.
        """
        settings, data = self.settings, self.data
        first = data.first(settings.max_rows).first(MAX_VALUES_OF_FITS // data.J)  # at random
        gram.require_independent_outputs(kernel)
        X, Y = Data.of((first.X, first.Y), self.likelihood)
        rows = Rows(X, Y, np.moveaxis(self._means_at(first), 0, 1))
        C, J = len(self.means), labels.num_latents(self.likelihood, Y)
        progress.now(f"{described(kernel, around=means, varying=False)}, fitted to {len(X)} rows")
        fit = site_fit(kernel, start, (C, data.D, J))
        with fit.lock:
            start_at(fit, kernel, start, 1.0 / C if means else 0.0)
            for _ in range(settings.max_rounds):
                M = min(settings.count(len(data.X)), MAX_POINTS_OF_FITS)
                Z, indices = settings.select(X, M, kernel=fit.prior.kernel, seed=data.seed)
                sites = first_sites(fit.mean(rows))
                loss, sites = fit.fit(settings.minimise, Z, rows, sites, means=means)
            weights = np.maximum(fit.weights.numpy(), 0.0)
            mean = self._mean(weights) if means else Zero(J)
            nll = _amplify(fit, mean, Z, rows, sites)
            prior = GaussianProcess(mean, deepcopy(fit.prior.kernel))
            likelihood = deepcopy(fit.likelihood)
        fitted = Regulariser(prior, prior, likelihood, Z, None, (Round(indices, loss, {}),), True)
        nll += penalty(fitted, len(X))
        progress.found(nll=nll, M=len(Z))
        return Candidate(fitted, nll)


def _amplify(fit: SiteFit, mean: MeanFunction, Z: AnyNDArray, rows: Rows, sites: Sites) -> float:
    """Amplify f where that predicts better, and return the negative log density.

    The more f varies, the further the bound is below the evidence, so that the variance of its
    maximum is too small. Once only: few labels would let f be amplified without end.
    """
    kernels = [deepcopy(fit.prior.kernel), scaled(fit.prior.kernel, AMPLIFICATION)]
    nlls = []
    for kernel in kernels:
        _assign_all(fit.prior.kernel, kernel)
        sites = fit.sites(Z, rows, sites)
        prior = GaussianProcess(mean, kernel)
        nlls.append(_left_out_nll(fit.likelihood, prior, Z, rows, sites))
    amplified = nlls[1] < nlls[0]
    _assign_all(fit.prior.kernel, kernels[amplified])
    return nlls[amplified]


def _left_out_nll(
    likelihood: Likelihood, prior: GaussianProcess, Z: AnyNDArray, rows: Rows, sites: Sites
) -> float:
    """Return the mean negative log density of observations, each given all the others."""
    of_y = leave_one_out(prior, sites.variance, Z, (rows.X, sites.Y))
    densities = log_predictive_densities(likelihood, rows.X, *left_out(of_y, sites), rows.Y)
    return -float(np.mean(densities))


def _assign_all(ours: Module, theirs: Module) -> None:
    """Give parameters the values of others with the same paths."""
    values = parameter_dict(theirs)
    for path, parameter in parameter_dict(ours).items():
        assign(parameter, values[path])


def start_at(fit: SiteFit, kernel: Kernel, likelihood: Likelihood, weight: float) -> None:
    """Let a fit start from given hyper-parameters."""
    _assign_all(fit.prior.kernel, kernel)
    _assign_all(fit.likelihood, likelihood)
    fit.weights.assign(tf.fill(fit.weights.shape, tf.constant(weight, default_float())))


def site_fit(kernel: Kernel, likelihood: Likelihood, shape: tuple[int, int, int]) -> SiteFit:
    """Return a `SiteFit` for a kernel, one that has its graph already if there is one.

    :param kernel: k.
    :param likelihood: p(y | f).
    :param shape: C, the number of means, D and J.
    """

    def make() -> SiteFit:
        prior = GaussianProcess(Zero(shape[-1]), deepcopy(kernel))
        return SiteFit(prior, deepcopy(likelihood), shape[0])

    of_kernel, of_likelihood = structure_of(kernel), structure_of_likelihood(likelihood)
    if of_kernel is None or of_likelihood is None:
        return make()
    return kept((of_kernel, of_likelihood, shape, default_float()), make)


def structure_of_likelihood(likelihood: Likelihood) -> Hashable | None:
    """Return what is equal for likelihoods that differ in the values of parameters, if known."""
    if type(likelihood) not in (Bernoulli, MultiClass, Softmax):
        return None
    parameters = tuple(
        (path, structure_of_parameter(parameter))
        for path, parameter in sorted(parameter_dict(likelihood).items())
    )
    link = likelihood.invlink if isinstance(likelihood, Bernoulli) else likelihood.num_classes
    return type(likelihood), link, parameters

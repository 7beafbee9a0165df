"""The candidates for the regulariser P under likelihoods that are not Gaussian.

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
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.functions import MeanFunction, Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import Bernoulli, Gaussian, Likelihood, MultiClass, Softmax
from gpflow.utilities import deepcopy, parameter_dict

from .._core import labels
from .._core.data import Data
from .._core.notices import logger
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..mean_functions.predictor import Predictor
from ..regulariser.expectations import log_predictive_densities
from ..regulariser.fit import Regulariser, Round
from ..regulariser.leave_one_out import leave_one_out
from ..regulariser.site_fit import Rows, SiteFit
from ..regulariser.sites import flat_sites, left_out, sites_of
from .candidates import Candidate, Candidates
from .class_predictors import LogProbabilities
from .evidence_fit import assign, kept, structure, structure_of_parameter
from .settings import Settings
from .start import TrainingData

MAX_ROWS_OF_SITE_SCORES = 5_000
"""Densities are compared at not more rows than these."""


class SiteCandidates(Candidates):
    """The candidates for P under any likelihood.

    :param data: the rows to fit to.
    :param settings: what is tried.
    """

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        J = labels.num_classes(settings.likelihood) or 0
        self.classes = np.arange(J) if settings.classes is None else settings.classes
        super().__init__(data, settings)

    def best(self) -> Regulariser:
        """Return the one that predicts best."""
        best = self._of_kernels()
        if self.means:
            around = self._around(best)
            best = min((best, around), key=_nll) if self.is_recipe else around
        return best.regulariser

    def _predictors(self, estimators: Sequence[Any]) -> list[Predictor]:
        """Return cross-fitted classifiers; of observations that are no labels, none by default."""
        data = self.data
        if not data.of_classes:
            if self.is_recipe:
                return []
            raise ValueError(
                f"predictor is given, but under a {type(self.noise).__name__} its predictions are "
                "not values of f. Give one for real-valued Y or for labels, or leave it out."
            )
        wrap = functools.partial(
            LogProbabilities,
            inputs=data.units[0],
            classes=self.classes,
            num_latents=data.J,
        )
        return self._cross_fit(estimators, data.Y.astype(int), wrap=wrap)

    def _around(self, best: Candidate) -> Candidate:
        """Return P around predictors, from the kernel that P has without them."""
        return self._fit(best.regulariser.prior.kernel, best.regulariser.likelihood, means=True)

    def _fit(
        self,
        kernel: Kernel,
        start: Likelihood,
        *,
        data: TrainingData | None = None,
        means: bool = False,
        pattern: Predictor | None = None,
    ) -> Candidate:
        """Return a fitted candidate.

        :param kernel: k, with the hyper-parameters to start from.
        :param start: the likelihood to start from.
        :param data: the rows; all of them if not given.
        :param means: whether P is around the predictors.
        :param pattern: not used, as there is no noise that varies.
        """
        settings, data = self.settings, self.data if data is None else data
        first = data.first(settings.max_rows)  # the rows are shuffled
        gram.require_independent_outputs(kernel)
        X, Y = Data.of((first.X, first.Y), self.noise)
        C, J = len(self.means), labels.num_latents(self.noise, Y)
        F = np.moveaxis(self._means_at(first), 0, 1)  # [N, C, J]
        fit = site_fit(kernel, start, (C, data.D, J))
        with fit.lock:
            start_at(fit, kernel, start, 1.0 / C if means else 0.0)
            for _ in range(settings.max_rounds):
                M = settings.count(len(data.X))
                Z, indices = settings.select(first.X, M, kernel=fit.prior.kernel, seed=data.seed)
                rows = Rows(X, Y, F)
                sites = flat_sites(tf.convert_to_tensor(fit.mean(rows)))
                loss, sites = fit.fit(settings.minimise, Z, rows, sites, means=means)
            kernel, likelihood = deepcopy(fit.prior.kernel), deepcopy(fit.likelihood)
            mean = self._mean(fit.weights.numpy()) if means else Zero(J)
        prior = GaussianProcess(mean, kernel)
        scored = data.first(MAX_ROWS_OF_SITE_SCORES)
        if len(scored.X) > len(first.X):
            X, Y = Data.of((scored.X, scored.Y), self.noise)
            sites = sites_of(likelihood, prior, Z, (X, Y))
        of_f = left_out(leave_one_out(prior, sites.variance, Z, (X, sites.Y)), sites)
        densities = log_predictive_densities(likelihood, X, *of_f, Y)
        parameters = (*prior.trainable_variables, *likelihood.trainable_variables)
        count = sum(variable.shape.num_elements() for variable in parameters)
        nll = count / len(first.X) - float(np.mean(densities))
        logger.info(
            "P%s, fitted to %d rows: negative log density %.3f",
            " around predictors" if means else "",
            len(first.X),
            nll,
        )
        fitted = Regulariser(prior, prior, likelihood, Z, None, (Round(indices, loss, {}),), True)
        return Candidate(fitted, np.asarray(of_f[0]), np.zeros([0, J]), nll, means)


def _nll(candidate: Candidate) -> float:
    return candidate.nll if np.isfinite(candidate.nll) else np.inf


def start_at(fit: SiteFit, kernel: Kernel, likelihood: Likelihood, weight: float) -> None:
    """Let a fit start from given hyper-parameters."""
    for ours, theirs in ((fit.prior.kernel, kernel), (fit.likelihood, likelihood)):
        values = parameter_dict(theirs)
        for path, parameter in parameter_dict(ours).items():
            assign(parameter, values[path])
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

    of_kernel, of_likelihood = structure(kernel), structure_of_likelihood(likelihood)
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


def candidates_of(data: TrainingData, settings: Settings) -> Candidates:
    """Return the candidates for P under the likelihood of the settings."""
    likelihood = settings.likelihood
    gaussian = likelihood is None or isinstance(likelihood, Gaussian)
    return (Candidates if gaussian else SiteCandidates)(data, settings)

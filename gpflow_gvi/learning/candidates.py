"""Candidates P = GP(m + Σ_c w_c h_c, k) under a likelihood, with or without predictors h.

How they are fitted, and how they predict rows that they have not seen, differs with the likelihood:
under Gaussian noise the evidence has a closed form (`fit_by_evidence`), under any other there are
sites (`fit_by_sites`).
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from gpflow import kernels
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.functions import Constant, MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import parameter_dict

from .._core.graphs import deepcopy
from .._core.names import kernel_name
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..kernels.structure import structure_of
from ..regulariser.fit import Judged, Regulariser, Round
from ..regulariser.lbfgs import Minimise
from ..regulariser.sites import Sites
from .noise import VaryingNoise
from .predictors import CrossFits
from .row_facts import left_out_together, spacing
from .rows.log_scale import LogScale
from .score import Predictions
from .settings import RECIPE, Settings
from .start import TrainingData

MIN_NOISE = 1e-9
"""The smallest variance of noise, where y is on no grid."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A P to fit, or a fitted one: its parts have the values to start from, or those found."""

    kernel: Kernel
    """k."""
    likelihood: Likelihood
    """p(y | f), the noise."""
    mean: MeanFunction
    """m, without the predictors."""
    weights: AnyNDArray | None = None
    """w, [C, J]; None if P is not around predictors."""
    family: Hashable = None
    """A key that kernels share if one graph evaluates them."""
    loss: float = np.nan
    """Minus the log evidence, or its bound, of a fitted one."""
    sites: Sites | None = None
    """Those of the first rows, where the likelihood is not Gaussian, to start from."""

    @property
    def is_around(self) -> bool:
        """Whether P is around predictors."""
        return self.weights is not None

    @property
    def noise(self) -> VaryingNoise | None:
        """The variance of the noise as a function of x, if it varies."""
        variance = getattr(self.likelihood, "variance", None)
        return variance if isinstance(variance, VaryingNoise) else None

    @functools.cached_property
    def num_parameters(self) -> int:
        """The number of fitted parameters."""
        of_weights = 0 if self.weights is None else self.weights.size
        parts = self.kernel, self.mean, self.likelihood
        variables = [variable for part in parts for variable in part.trainable_variables]
        return of_weights + sum(variable.shape.num_elements() for variable in variables)

    def replace(self, **changes: Any) -> Candidate:
        """Return the candidate with other parts."""
        return dataclasses.replace(self, **changes)

    def copied(self) -> Candidate:
        """Return the candidate with parts of its own; noise that varies is made for each."""
        likelihood = self.likelihood if self.noise is not None else deepcopy(self.likelihood)
        parts = {"kernel": deepcopy(self.kernel), "mean": deepcopy(self.mean)}
        return self.replace(likelihood=likelihood, **parts)


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fitted candidate, and how it predicts each group of rows from all others.

    That has a closed form with the hyper-parameters of all rows: it is a screening, and no more.
    """

    candidate: Candidate
    left_out: Predictions
    """Predictions of observations under Gaussian noise, else of f."""
    nll: float
    """The negative log density of a row left out, in original units, and p/N for p parameters that
    N rows were fitted by: each row is among these (Akaike 1974)."""
    by: Fits
    """The fits that it is from, to y or to log y."""
    is_early: bool = False
    """Whether hyper-parameters are still on their way to an optimum."""

    @property
    def used(self) -> AnyNDArray:
        """The predictors that have a weight, by their numbers."""
        weights, least = self.candidate.weights, self.by.recipe.min_weight_of_predictor
        weights = np.zeros([0, 1]) if weights is None else weights
        return np.flatnonzero(np.max(np.abs(weights), axis=1) > least)

    @property
    def mean(self) -> AnyNDArray:
        """The mean of each row left out: [N, J]."""
        return self.left_out.mean[0]


def best_of(fits: list[Fitted]) -> Fitted:
    """Return the fit that predicts best."""
    return min(fits, key=lambda each: each.nll if np.isfinite(each.nll) else np.inf)


def near_best(fits: list[Fitted], gap: float, count: int = 2) -> list[Fitted]:
    """Return the best fit and those worse by less than a gap: at most `count` in all."""
    limit = best_of(fits).nll + gap
    near = sorted((each for each in fits if each.nll < limit), key=lambda each: each.nll)
    return near[:count] or [best_of(fits)]


class Fits(abc.ABC):
    """Fits of candidates to rows.

    :param data: the rows.
    :param settings: those of the fits.
    """

    has_closed_form = False
    """Whether rows that hyper-parameters have not seen are many, and predicted in closed form."""
    takes_series = False
    """Whether kernels of a trend that changes are taken if they predict much better."""
    likelihood: Likelihood
    """The likelihood to start from."""
    mean: MeanFunction
    """The mean of P to start from."""
    observed: AnyNDArray
    """Observations as the likelihood takes them: [N, P]."""
    bounds_of_noise: tuple[float, float]
    """The smallest and the largest variance of noise that varies."""
    has_grid = False
    """Whether y is on a grid, and was rounded to it: y is within δ/2 of its value then, which has
    errors of δ/√12 even around the true function. Gaussian noise has at least that variance, and
    densities are compared by the mass of an interval."""
    noise_above: Callable[[float], Likelihood]
    """The noise to start from whose variance stays above a bound, if noise is Gaussian."""
    minimise: Minimise
    """The optimiser of hyper-parameters."""
    minimise_briefly: Minimise
    """The same for candidates to choose among."""
    screens_early = False
    """Whether the screening is of fits that are not at an optimum yet."""
    rows_of_scores: AnyNDArray
    """The rows that fits without them predict: [n]."""

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        self.data = data
        self.settings = settings.regulariser
        self.recipe = self.settings.recipe
        self.groups = left_out_together(data.X)
        self.first = np.arange(len(data.X))[: self.settings.max_rows]
        """The rows that hyper-parameters are fitted to: [n]."""
        units = data.units[1]
        grid = [spacing(y) for y in np.asarray(units.original(data.Y)).T]
        self.spacing = np.array(grid) * np.asarray(units.slope(data.Y)) + np.zeros(data.Y.shape)
        """δ of each observation in the units of the model, ∞ where there is no grid: [N, P]."""
        self.log_derivative = np.asarray(units.log_derivative(data.Y)) + np.zeros(len(data.Y))
        """The term to add to log densities in the units of the model for original ones: [N]."""
        predictors = self.settings.predictors
        self.has_given_predictors = predictors not in (None, RECIPE)
        if predictors == RECIPE:
            predictors = self.recipe.predictors
        self.predictors = self._cross_fits(predictors(data) if predictors else [])
        """What P may be around."""
        is_alone = self.has_given_predictors and self.predictors.num_means == 1
        self.fits_weights = not (is_alone and self.settings.kernels is not None)
        """Whether predictors have weights (Kennedy and O'Hagan 2001), as they may err much: P with
        a given kernel is around the only one as it is."""
        if self.has_given_predictors:  # errors of the user's predictors come first
            _out_of_fold(self.predictors, data.first(1))

    def candidate(self, kernel: Kernel) -> Candidate:
        """Return P with a kernel, at the start."""
        gram.require_independent_outputs(kernel)
        family, likelihood = structure_of(kernel) or kernel, self.likelihood
        if all(isinstance(part, kernels.Constant) for part in getattr(kernel, "kernels", [kernel])):
            likelihood = deepcopy(likelihood)  # all that a constant leaves of Y is noise
            for parameter in likelihood.parameters:
                parameter.prior = None
        return Candidate(kernel, likelihood, self.mean, family=family)

    def on_first(self, num_rows: int) -> Fits:
        """Return fits to the first rows, not more than this number of them."""
        if num_rows >= len(self.data.X):
            return self
        found = copy.copy(self)
        vars(found).pop("means", None)
        found.data = self.data.first(num_rows)
        for name in ("first", "groups", "spacing", "log_derivative", "observed"):
            setattr(found, name, getattr(self, name)[:num_rows])
        return found

    @abc.abstractmethod
    def fit(
        self,
        start: Candidate,
        rows: AnyNDArray,
        minimise: Minimise,
        means: AnyNDArray | None = None,
    ) -> Candidate:
        """Return a candidate with the hyper-parameters of the greatest evidence of some rows.

        The next fit of its family changes its parts, unless they are `copied`.

        :param means: predictions at all rows, if not those of cross-fitting: [N, C, J].
        """

    @abc.abstractmethod
    def screened(self, candidate: Candidate) -> Fitted:
        """Return a fitted candidate with its predictions of each group of rows from all others."""

    @abc.abstractmethod
    def predict_without(
        self, candidate: Candidate, given: AnyNDArray, held: AnyNDArray, means: AnyNDArray
    ) -> MeanAndVariance:
        """Return predictions of held rows by a fit that starts at a candidate, without them.

        Under Gaussian noise they are of observations, else of f: [B, J] each.

        :param given: the rows to fit to, [n].
        :param held: the rows to predict, [B].
        :param means: predictions at all rows by models that have seen neither the row nor those
            held: [N, C, J].
        """

    def keep_useful_predictors(self, plain: Fitted) -> None:  # noqa: B027  (by default all are)
        """Leave out predictors that do not help a fit which does without them."""

    @abc.abstractmethod
    def around(self, plain: Fitted) -> Candidate:
        """Return P around predictors, to start from the fit without them."""

    @abc.abstractmethod
    def _cross_fits(self, estimators: Sequence[Any]) -> CrossFits:
        """Return cross-fits of estimators of the observations."""

    def cross_fit(
        self, estimators: Sequence[Any], data: TrainingData, targets: AnyNDArray, **options: Any
    ) -> CrossFits:
        """Return cross-fits of estimators to targets, [N, J], in original units or logarithms."""
        options |= {"num_folds": self.settings.num_folds, "n_jobs": self.settings.n_jobs}
        return CrossFits(
            estimators, data, targets, is_brief=not self.has_given_predictors, **options
        )

    @functools.cached_property
    def means(self) -> AnyNDArray:
        """Predictions at the rows by models that have not seen them: [N, C, J]."""
        return _out_of_fold(self.predictors, self.data)

    def num_points(self, candidate: Candidate) -> int:
        """Return the number of inducing points that P is conditioned on."""
        return self.settings.count(len(self.data.X))


def title(fits: Fits, candidate: Candidate) -> str:
    """Return the name of a candidate in reports."""
    parts = (
        kernel_name(candidate.kernel),
        " around predictors" * candidate.is_around,
        ", varying noise" * (candidate.noise is not None),
        ", of log y" * isinstance(fits.data.units[1], LogScale),
    )
    return "P: " + "".join(parts)


def prior(candidate: Candidate, predictors: CrossFits) -> GaussianProcess:
    """Return GP(m + Σ_c w_c h_c, k)."""
    if candidate.weights is None:
        return GaussianProcess(candidate.mean, candidate.kernel)
    terms = [
        mean if np.all(weight == 1.0) else Constant(weight) * mean
        for weight, mean in zip(candidate.weights, predictors.means, strict=True)
    ]
    return GaussianProcess(functools.reduce(operator.add, terms), candidate.kernel)


def regulariser(fits: Fits, candidate: Candidate, judged: Judged | None = None) -> Regulariser:
    """Return P, which is conditioned later, and its inducing points."""
    P, data, M = prior(candidate, fits.predictors), fits.data, fits.num_points(candidate)
    Z, indices = fits.settings.points(data, M, candidate.kernel)
    rounds = (Round(indices, candidate.loss),)
    return Regulariser(P, P, deepcopy(candidate.likelihood), Z, None, rounds, True, judged)


def _out_of_fold(predictors: CrossFits, data: TrainingData) -> AnyNDArray:
    """Return the predictions of rows by models that have not seen them: [N, C, J]."""
    values = [mean.predict(data.X) for mean in predictors.means]
    means = np.array(values, data.X.dtype).reshape(len(values), len(data.X), data.J)
    return np.moveaxis(means, 0, 1)


def scaled(kernel: Kernel, factor: float) -> Kernel:
    """Return a copy of a kernel whose variances are multiplied by a factor."""
    kernel = deepcopy(kernel)
    for path, parameter in parameter_dict(kernel).items():
        if parameter.trainable and path.rpartition(".")[2] in ("variance", "variances"):
            parameter.assign(np.maximum(factor * parameter.numpy(), 1e-6))
    return kernel

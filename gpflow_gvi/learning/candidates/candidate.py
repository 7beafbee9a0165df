"""The candidates for the regulariser P, and the choice among them.

What predicts observations best is taken, each of them from all the others, as evidence alone can be
misled. What the candidates are depends on the likelihood: `gaussian`, `by_sites`.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import operator
from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.functions import Constant, MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import parameter_dict

from ..._core.graphs import deepcopy
from ...kernels.structure import structure_of
from ...regulariser.fit import Regulariser
from .. import recipe
from ..data import spacing
from ..settings import Settings, recipe_predictors
from ..start import TrainingData
from .cross_fitting import CrossFits

MAX_ROWS_OF_STARTS = 300
"""Several kernels are first fitted to not more rows than these, and the best one to the others."""

MIN_NOISE = 1e-9
"""The smallest variance of noise, where y is on no grid."""

MAX_GAP_OF_STARTS = 0.5
"""The second best kernel is fitted to all rows, too, if its start predicts worse by less nats."""

MAX_GAP = 0.1
"""The second best candidate is tried around predictors, and with noise that varies, too, if it
predicts worse by less nats."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A fitted P, and how well it predicts each observation from all the others."""

    regulariser: Regulariser
    nll: float
    """The negative log density of an observation given the others, and a penalty.

    A kernel of many hyper-parameters is fitted to each row, too, so that the density flatters it:
    by p/N for p parameters, as for Akaike's criterion (1974). There is none where the parameters
    have not seen the rows that are predicted."""


AnyCandidate = TypeVar("AnyCandidate", bound=Candidate)


class Candidates(abc.ABC, Generic[AnyCandidate]):
    """The candidates for P.

    :param data: the rows to fit to.
    :param settings: what is tried.
    """

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        self.data = data
        self.settings = settings.regulariser
        # The prior of the noise is for standard units.
        self.spacing = np.array([spacing(y) for y in data.Y.T])
        """δ of each output in the units of the model, ∞ where it is on no grid: [P]."""
        noise = (
            recipe.noise(len(data.X), data.D, self.lower_bound_of_noise)
            if settings.standardise
            else Gaussian(0.1)
        )
        self.likelihood = settings.likelihood or noise
        predictors = self.settings.predictors
        self.is_recipe = predictors is recipe_predictors
        self.predictors = self._of_estimators([] if predictors is None else predictors(data))
        """What P may be around."""
        if not self.is_recipe:  # what is wrong with those of the user is said before all else
            self.means_at(data.first(1))

    @property
    def lower_bound_of_noise(self) -> float:
        """The variance of what was rounded away, where that of an output is known."""
        known = self.spacing[np.isfinite(self.spacing)]
        return max(MIN_NOISE, float(np.min(known)) ** 2 / 12.0 if len(known) else 0.0)

    @abc.abstractmethod
    def _fit(
        self,
        kernel: Kernel,
        start: Likelihood,
        *,
        starts_of: TrainingData | None = None,
    ) -> AnyCandidate:
        """Return a fitted candidate.

        :param kernel: k, with the hyper-parameters to start from.
        :param start: the likelihood to start from.
        :param starts_of: the rows, if the fit is a start to choose; else they are all.
        """

    def _of_starts(self, kernels: Sequence[Kernel]) -> list[AnyCandidate]:
        """Return the fits of the promising kernels, each from the best of its starts."""
        starts: dict[Hashable, list[AnyCandidate]] = collections.defaultdict(list)
        first = self.data.first(MAX_ROWS_OF_STARTS)
        for kernel in kernels:
            start = self._fit(kernel, self.likelihood, starts_of=first)
            starts[structure_of(kernel) or id(kernel)].append(start)
        best = [best_of(of_structure) for of_structure in starts.values()]
        return [self._from_start(start) for start in near_best(best, MAX_GAP_OF_STARTS)]

    def _from_start(self, start: AnyCandidate) -> AnyCandidate:
        """Return the fit to all rows."""
        return self._fit(start.regulariser.prior.kernel, start.regulariser.likelihood)

    @abc.abstractmethod
    def _of_estimators(self, estimators: Sequence[Any]) -> CrossFits:
        """Return cross-fits of estimators of the observations."""

    def _cross_fit(
        self,
        estimators: Any,
        data: TrainingData,
        targets: AnyNDArray,
        **options: Any,
    ) -> CrossFits:
        return CrossFits(
            estimators,
            data,
            targets,
            num_folds=self.settings.num_folds,
            n_jobs=self.settings.n_jobs,
            is_brief=self.is_recipe,
            **options,
        )

    def means_at(self, data: TrainingData) -> AnyNDArray:
        """Return the predictions by models that have not seen the rows: [N, C, J]."""
        values = [mean.predict(data.X) for mean in self.predictors.means]
        means = np.array(values, data.X.dtype).reshape(len(values), len(data.X), data.J)
        return np.moveaxis(means, 0, 1)

    def _mean(self, weights: AnyNDArray) -> MeanFunction:
        """Return Σ_c w_c h_c."""
        terms = [
            mean if np.all(weight == 1.0) else Constant(weight) * mean
            for weight, mean in zip(weights, self.predictors.means, strict=True)
        ]
        return functools.reduce(operator.add, terms)


def penalty(regulariser: Regulariser, num_rows: int) -> float:
    """Return p/N for the p parameters that were fitted to N rows."""
    prior, likelihood = regulariser.prior, regulariser.likelihood
    parameters = (*prior.trainable_variables, *likelihood.trainable_variables)
    return sum(variable.shape.num_elements() for variable in parameters) / num_rows


def best_of(candidates: Sequence[AnyCandidate]) -> AnyCandidate:
    """Return the candidate that predicts best."""
    return min(candidates, key=lambda each: each.nll if np.isfinite(each.nll) else np.inf)


def near_best(candidates: Sequence[AnyCandidate], gap: float = MAX_GAP) -> list[AnyCandidate]:
    """Return the best candidate, and the second one if it predicts not much worse."""
    best = best_of(candidates)
    others = [each for each in candidates if each is not best and each.nll < best.nll + gap]
    return [best, *([best_of(others)] if others else [])]


def scaled(kernel: Kernel, factor: float) -> Kernel:
    """Return a copy of a kernel whose variances are multiplied by a factor."""
    kernel = deepcopy(kernel)
    for path, parameter in parameter_dict(kernel).items():
        if parameter.trainable and path.rpartition(".")[2] in ("variance", "variances"):
            parameter.assign(tf.maximum(factor * parameter, 1e-6))
    return kernel

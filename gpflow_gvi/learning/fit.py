"""How candidates for P are fitted, and how they predict rows that they have not seen.

What is done for this differs with the likelihood: under Gaussian noise the evidence has a closed
form (`fit_by_evidence`), under any other there are sites (`fit_by_sites`).
"""

from __future__ import annotations

import abc
import copy
import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, MeanAndVariance
from gpflow.functions import Constant, MeanFunction
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import parameter_dict

from .._core import progress
from .._core.graphs import deepcopy
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..kernels.structure import structure_of
from ..regulariser.evidence import titsias_gap
from ..regulariser.fit import Judged, Regulariser, Round
from .candidate import Candidate, Fitted
from .data import groups_of, spacing
from .predictors import CrossFits
from .rows.log_scale import LogScale
from .settings import RECIPE, Settings
from .start import TrainingData
from .summary import LOG_SCALE

MIN_NOISE = 1e-9
"""The smallest variance of noise, where y is on no grid."""


class Fits(abc.ABC):
    """Fits of candidates to rows.

    :param data: the rows.
    :param settings: those of the fits.
    """

    has_closed_form = False
    """Whether rows that hyper-parameters have not seen are many, and predicted in closed form."""
    observed: AnyNDArray
    """Observations as the likelihood takes them: [N, P]."""

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        self.data = data
        self.settings = settings.regulariser
        self.recipe = self.settings.recipe
        self.groups = groups_of(data.X)
        units = data.units[1]
        grid = [spacing(y) for y in np.asarray(units.original(data.Y)).T]
        self.spacing = np.array(grid) * np.asarray(units.slope(data.Y)) + np.zeros(data.Y.shape)
        """δ of each observation in the units of the model, ∞ where there is no grid: [N, P]."""
        self.log_derivative = np.asarray(units.log_derivative(data.Y)) + np.zeros(len(data.Y))
        """The term to add to log densities in the units of the model for original ones: [N]."""
        self.likelihood: Likelihood
        """The likelihood to start from."""
        self.mean: MeanFunction
        """The mean of P to start from."""
        self.has_given_predictors = self.settings.predictors not in (None, RECIPE)
        self.predictors = self._cross_fits(self._estimators())
        """What P may be around."""
        if self.has_given_predictors:  # errors of the user's predictors come first
            self.means_at(data.first(1))

    def _estimators(self) -> Sequence[Any]:
        predictors = self.settings.predictors
        if callable(predictors):
            return predictors(self.data)
        return [] if predictors is None else self.recipe.predictors(self.data)

    def kernels_of_series(self) -> list[Kernel]:
        """Return kernels of a trend that changes, which are taken if they predict much better."""
        return []

    def candidate(self, kernel: Kernel) -> Candidate:
        """Return P with a kernel, at the start."""
        family = structure_of(kernel) or kernel
        return Candidate(kernel, self.likelihood, self.mean, family=family)

    @property
    def rows_of_scores(self) -> AnyNDArray:
        """The rows that fits without them predict: [n]."""
        return np.arange(len(self.data.X))

    def on_first(self, num_rows: int) -> Fits:
        """Return fits to the first rows, not more than this number of them."""
        if num_rows >= len(self.data.X):
            return self
        found = copy.copy(self)
        vars(found).pop("means", None)
        found.data = self.data.first(num_rows)
        for name in ("groups", "spacing", "log_derivative"):
            setattr(found, name, getattr(self, name)[:num_rows])
        return found

    @property
    def first(self) -> AnyNDArray:
        """The rows that hyper-parameters are fitted to: [n]."""
        return np.arange(len(self.data.X))[: self.settings.max_rows]

    def fitted(self, start: Candidate, *, brief: bool = True) -> Fitted:
        """Return the fit of a candidate, and what the screening says of it.

        :param brief: whether few iterations suffice, as hyper-parameters start near an optimum.
        """
        if start.is_around:
            self.means  # noqa: B018  (cross-fitting is a stage of its own)
        progress.now(f"{self.name(start)}, fitted to {len(self.first)} rows")
        found = self.screened(self.fit(start, self.first, brief=brief))
        progress.found(nll=found.nll)
        return found

    def name(self, candidate: Candidate) -> str:
        """Return the name of a candidate in reports."""
        return candidate.name + LOG_SCALE * isinstance(self.data.units[1], LogScale)

    def fit(self, start: Candidate, rows: AnyNDArray, *, brief: bool) -> Candidate:
        """Return a candidate with the hyper-parameters of the greatest evidence of some rows."""
        gram.require_independent_outputs(start.kernel)
        return self._fit(start, rows, self.minimiser(start, rows, brief=brief))

    @abc.abstractmethod
    def minimiser(self, start: Candidate, rows: AnyNDArray, *, brief: bool) -> Any:
        """Return the optimiser that maximises the evidence."""

    @abc.abstractmethod
    def _fit(
        self, start: Candidate, rows: AnyNDArray, minimise: Any, means: AnyNDArray | None = None
    ) -> Candidate:
        """Return the fit of a candidate.

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

    def with_varying_noise(self, constant: Fitted) -> Candidate | None:
        """Return P with noise in the pattern of a fit's errors, if they have one."""
        return None

    @abc.abstractmethod
    def around(self, plain: Fitted) -> Candidate:
        """Return P around predictors, to start from the fit without them."""

    @abc.abstractmethod
    def _cross_fits(self, estimators: Sequence[Any]) -> CrossFits:
        """Return cross-fits of estimators of the observations."""

    @property
    def fits_weights(self) -> bool:
        """Whether predictors have weights (Kennedy and O'Hagan 2001), as they may err much.

        P with a given kernel is around the only one as it is."""
        is_alone = self.has_given_predictors and self.predictors.num_means == 1
        return not (is_alone and self.settings.kernels is not None)

    @functools.cached_property
    def means(self) -> AnyNDArray:
        """Predictions at the rows by models that have not seen them: [N, C, J]."""
        return self.means_at(self.data)

    def means_at(self, data: TrainingData) -> AnyNDArray:
        """Return the predictions of rows by models that have not seen them: [N, C, J]."""
        values = [mean.predict(data.X) for mean in self.predictors.means]
        means = np.array(values, data.X.dtype).reshape(len(values), len(data.X), data.J)
        return np.moveaxis(means, 0, 1)

    def prior(self, candidate: Candidate) -> GaussianProcess:
        """Return GP(m + Σ_c w_c h_c, k)."""
        if candidate.weights is None:
            return GaussianProcess(candidate.mean, candidate.kernel)
        terms = [
            mean if np.all(weight == 1.0) else Constant(weight) * mean
            for weight, mean in zip(candidate.weights, self.predictors.means, strict=True)
        ]
        return GaussianProcess(functools.reduce(operator.add, terms), candidate.kernel)

    def num_points(self, candidate: Candidate, noise_variance: Any) -> int:
        """Return the number of inducing points that P is conditioned on: as many as it takes."""
        N = len(self.data.X)
        few, most = self.settings.count(N), self.settings.most_inducing(self.data.num_rows)
        if few == most:
            return few
        if self.recipe.max_rows_of_points >= N:
            return N
        X = self.data.X[self.first]
        Z, _ = self.settings.select(X, few, kernel=candidate.kernel, seed=self.data.seed)
        missed = titsias_gap(candidate.kernel, noise_variance, Z, X)
        return few if missed < self.recipe.max_missed else most

    def regulariser(self, candidate: Candidate, judged: Judged | None = None) -> Regulariser:
        """Return P, which is conditioned later, and its inducing points."""
        prior, data = self.prior(candidate), self.data
        M = self._num_points(candidate)
        Z, indices = self.settings.points(data, M, candidate.kernel)
        rounds = (Round(indices, candidate.loss, {}),)
        likelihood = deepcopy(candidate.likelihood)
        return Regulariser(prior, prior, likelihood, Z, None, rounds, True, judged)

    def _num_points(self, candidate: Candidate) -> int:
        return self.settings.count(len(self.data.X))


def scaled(kernel: Kernel, factor: float) -> Kernel:
    """Return a copy of a kernel whose variances are multiplied by a factor."""
    kernel = deepcopy(kernel)
    for path, parameter in parameter_dict(kernel).items():
        if parameter.trainable and path.rpartition(".")[2] in ("variance", "variances"):
            parameter.assign(np.maximum(factor * parameter.numpy(), 1e-6))
    return kernel

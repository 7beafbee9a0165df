"""The settings of the procedure, and the defaults of `learn`, of the estimators and of experiments.

This module imports no TensorFlow, so that a configuration can be read without it.
"""

from __future__ import annotations

import dataclasses
import operator
import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .q_training import BatchTraining, CosineAdam, EarlyStopping, Passes, Train
from .start import Start, TrainingData, inducing_covariance, inducing_mean

if TYPE_CHECKING:
    from gpflow.base import RegressionData
    from gpflow.functions import MeanFunction
    from gpflow.kernels import Kernel
    from gpflow.likelihoods import Likelihood

    from ..divergences import Divergence
    from ..gaussian_process import GaussianProcess
    from ..losses import Loss
    from ..models import GVI
    from ..regulariser.evidence import Evidence
    from ..regulariser.fit import Regulariser
    from ..regulariser.inducing_points import Select, Selection
    from ..regulariser.lbfgs import Minimise
    from .recipe import Recipe


def _later(name: str) -> Any:
    """Return a part of the package that needs TensorFlow."""
    return pkgutil.resolve_name(f"gpflow_gvi.{name}")


@dataclasses.dataclass(frozen=True)
class LBFGS:
    """L-BFGS for hyper-parameters."""

    max_iterations: int = 40
    tolerance: float = 1e-9
    """Stop when an iteration lowers the loss by less than this part of it."""

    def __call__(self, loss: Callable[[], Any], variables: Sequence[Any]) -> None:
        """Change the variables so that the loss is smaller."""
        from ..regulariser.lbfgs import lbfgs

        if self.max_iterations:
            lbfgs(loss, variables, **dataclasses.asdict(self))


def _with_iterations(minimise: Minimise, change: Callable[[int], int]) -> Minimise:
    """Return a minimiser, of L-BFGS with another maximal number of iterations."""
    if not isinstance(minimise, LBFGS):
        return minimise
    return dataclasses.replace(minimise, max_iterations=change(minimise.max_iterations))


TOLERANCE = 1e-5
"""That of the minimisation of minus the log evidence: less of it changes no prediction."""

Noise = Literal["auto", "constant", "varying"]
Effort = Literal["fast", "default", "best"]

RECIPE: Literal["recipe"] = "recipe"
"""The predictors of the recipe."""

NUM_INDUCING = 200
"""The maximal number of inducing points."""

MAX_INDUCING = 1000
"""The same where `NUM_INDUCING` points miss much of the function."""

MAX_ITERATIONS_OF_ROUND = 8
"""The maximal number of iterations for given sites. More of them come close to an optimum that
moves with the sites."""


@dataclasses.dataclass(frozen=True)
class RegulariserSettings:
    """The settings of the fit of the regulariser P."""

    recipe: Recipe = dataclasses.field(default_factory=lambda: _later("learning.recipe:Recipe")())
    """The candidates tried by default, and the numbers by which they are chosen."""
    kernels: Callable[[TrainingData], Sequence[Kernel]] | None = None
    """The kernels to choose among, with the hyper-parameters to start from; None for those of the
    recipe."""
    mean: Callable[[TrainingData], MeanFunction] | None = None
    """m_P, to start from, before P is conditioned; by default zero, or the constant that fits best
    where f is not the mean of Y. With a mean P is around no predictors, and noise is constant."""
    predictors: Callable[[TrainingData], Sequence[Any]] | Literal["recipe"] | None = RECIPE
    """Estimators to cross-fit: P may be around the predictions of those of the recipe, and is
    around those of any others. None for none."""
    noise: Noise = "auto"
    """Whether the variance of the noise depends on the input, where Y is real-valued."""
    heavy_tails: bool | None = None
    """Whether real-valued Y are predicted with the tails that errors of rows left out have; by
    default where `noise` is "auto"."""
    num_folds: int = 5
    """K, for predictors and for the pattern of the noise."""
    n_jobs: int | None = None
    """The number of predictors that are fitted at once, as in joblib."""
    num_inducing: int | Callable[[int], int] = NUM_INDUCING
    """M, the maximal number of inducing points, or M as a function of the number of rows."""
    max_inducing: int | None = None
    """The number of inducing points up to which more are taken where M of them miss much of the
    function, of real-valued Y and not too many rows; by default never more than M."""
    max_rows: int | None = 1000
    """Hyper-parameters are fitted to the first rows, not more than these; None for all rows."""
    evidence: Evidence = dataclasses.field(
        default_factory=lambda: _later("regulariser.evidence:DataEvidence")()
    )
    """The evidence that is maximised, and that P is conditioned on."""
    select: Select = dataclasses.field(
        default_factory=lambda: _later("regulariser.inducing_points:greedy_variance")
    )
    """The selection of inducing points."""
    max_rounds: int = 1
    """The maximal number of rounds of choosing points and fitting hyper-parameters to them."""
    minimise: Minimise = LBFGS(40, TOLERANCE)
    """The optimiser of hyper-parameters."""
    minimise_briefly: Minimise = LBFGS(20, TOLERANCE)
    """The same for candidates to choose among."""
    process: Callable[[Regulariser], GaussianProcess] = operator.attrgetter("posterior")
    """Which process P is: the fitted prior, or that conditioned on the data."""

    def kernels_for(self, data: TrainingData) -> Sequence[Kernel]:
        """Return the kernels to choose among."""
        return self.recipe.kernels(data) if self.kernels is None else self.kernels(data)

    @property
    def has_heavy_tails(self) -> bool:
        """Whether real-valued Y are predicted with tails."""
        return self.noise == "auto" if self.heavy_tails is None else self.heavy_tails

    def briefly(self, num_features: int) -> Minimise:
        """Return `minimise_briefly`, of L-BFGS with as many iterations as features at least.

        It learns the curvature of one direction at each iteration.
        """
        return _with_iterations(self.minimise_briefly, lambda n: max(n, num_features) if n else n)

    def again(self, num_features: int = 0) -> Minimise:
        """Return a quarter of `briefly`, for fits to some of the rows, from those to all."""
        return _with_iterations(self.briefly(num_features), lambda n: (n + 3) // 4)

    def of_a_round(self) -> Minimise:
        """Return `minimise`, of L-BFGS with few iterations: sites are updated after these."""
        return _with_iterations(self.minimise, lambda n: min(n, MAX_ITERATIONS_OF_ROUND))

    def count(self, num_rows: int) -> int:
        """Return M for this number of rows."""
        M = self.num_inducing
        return M(num_rows) if callable(M) else int(M)

    def most_inducing(self, num_rows: int) -> int:
        """Return the number of inducing points that is never exceeded for this number of rows."""
        few = num_rows <= self.recipe.max_rows_of_more_points
        return max(self.count(num_rows), (self.max_inducing or 0) if few else 0)

    def points(self, data: TrainingData, num_points: int, kernel: Kernel) -> Selection:
        """Return inducing points among the rows, which are in random order."""
        X = data.X[: self.recipe.max_rows_of_choice]
        return self.select(X, num_points, kernel=kernel, seed=data.seed)


def preset(effort: Effort) -> RegulariserSettings:
    """Return the settings of the fit of P for an effort."""
    if effort == "fast":
        recipe = _later("learning.recipe:Recipe")(sums=False, log_inputs=False)
        return RegulariserSettings(recipe, predictors=None, noise="constant", heavy_tails=True)
    if effort == "best":
        return RegulariserSettings(
            num_folds=10,
            num_inducing=2 * NUM_INDUCING,
            max_rows=2000,
            minimise=LBFGS(200, 1e-7),
            minimise_briefly=LBFGS(100, 1e-7),
        )
    return RegulariserSettings()


@dataclasses.dataclass(frozen=True)
class VariationalSettings:
    """The settings of the initial variational process Q."""

    mean: Callable[[Start], MeanFunction] = inducing_mean
    covariance: Callable[[Start], Kernel] = inducing_covariance


@dataclasses.dataclass(frozen=True)
class ModelSettings:
    """The model that P and Q make up, and its objective."""

    kind: type[GVI] = dataclasses.field(default_factory=lambda: _later("models:PGVI"))
    """`PGVI`, `GWI` or `GVI`."""
    divergence: Callable[[TrainingData], Divergence] | None = None
    """D, made anew for each training; that of the model if None."""
    divergence_weight: float | Literal["1/N"] = 0.1
    """λ, or that of one divergence beside the sum of the losses."""
    loss: Callable[[], Loss] | None = None
    """ℓ; that of the model if None."""
    train_likelihood: bool = True
    """Whether the likelihood is trained further with Q."""

    def build(
        self, P: GaussianProcess, Q: GaussianProcess, likelihood: Likelihood, data: TrainingData
    ) -> GVI:
        """Return the model."""
        from gpflow.utilities import set_trainable

        from .._core.graphs import deepcopy

        options: dict[str, Any] = {}
        if self.divergence is not None:
            options["divergence"] = self.divergence(data)
        if self.loss is not None:
            options["loss"] = self.loss()
        likelihood = deepcopy(likelihood)
        if not self.train_likelihood:
            set_trainable(likelihood, False)
        N, weight = data.num_rows, self.divergence_weight
        weight = 1.0 / N if weight == "1/N" else weight
        return self.kind(P, Q, likelihood, num_data=N, divergence_weight=weight, **options)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the procedure."""

    regulariser: RegulariserSettings = dataclasses.field(default_factory=RegulariserSettings)
    variational: VariationalSettings = dataclasses.field(default_factory=VariationalSettings)
    model: ModelSettings = dataclasses.field(default_factory=ModelSettings)
    training: Train = dataclasses.field(
        default_factory=lambda: BatchTraining(Passes(), CosineAdam(), EarlyStopping())
    )
    trains: bool | None = None
    """Whether Q is trained; by default if anything of it is chosen (see `trains_q`)."""
    temper: Callable[[GVI, RegressionData], GVI] | None = dataclasses.field(
        default_factory=lambda: _later("calibration.tempering:temper")
    )
    """What is done with the trained model and the validation data; None for nothing. Without
    training, it is tempered by predictions of each row by all the others."""
    refit: bool = True
    """Whether rows that were held out for validation join the others in the end: P is conditioned
    on all rows, Q is trained on them for as long as was best, and tempered by the factor that was
    best. A network in its mean goes on from where it was best, and its covariance stays."""
    validation_fraction: float | None = None
    """The fraction of the rows to hold out for validation, where no validation data are given. By
    default it is a tenth where Q is trained, and nothing elsewhere."""
    calibration_fraction: float = 0.0
    """The fraction of the rows to set aside for conformal intervals, or sets of classes."""
    likelihood: Likelihood | None = None
    """The noise to start from, or a likelihood of labels; None for Gaussian noise."""
    classes: Any = None
    """The names of the classes 0, 1, ..., an array, if labels have others."""
    standardise: bool = True
    """Whether columns of X and of real-valued Y have mean zero and standard deviation one."""
    input_shape: tuple[int, ...] | None = None
    """The shape of one input, where rows of X are images."""
    seed: int = 0
    """The seed of the split, the selection, the folds, the network and the order of batches."""
    pool: bool = False
    """Whether predictions may be a mixture of several candidates, where P is fitted to real-valued
    Y and is Q as it is."""
    sample_weight: Any = None
    """w of each row of real-valued Y, an array [N]: its noise has the variance σ²/w."""
    row_numbers: Any = None
    """Where each row stands among those that were given, for messages, if some are left out: [N].
    """

    def numbers_of(self, X: Any) -> Any:
        """Return where the rows X stand among those that were given: [N]."""
        return np.arange(len(X)) if self.row_numbers is None else self.row_numbers

    @property
    def of_classes(self) -> bool:
        """Whether Y are labels."""
        from .._core import labels

        return labels.are_labels(self.likelihood)

    @property
    def trains_q(self) -> bool:
        """Whether Q is trained.

        Q starts as the process of the optimal inducing distribution for Gaussian noise (Titsias
        2009), or of the sites of another likelihood, where no training improves the bound. So by
        default it is trained if its mean, its covariance, the loss, the divergence or λ is chosen.
        """
        if self.trains is not None:
            return self.trains
        return (self.variational, self.model) != (VariationalSettings(), ModelSettings())

    @property
    def held_out(self) -> float:
        """The fraction of the rows to hold out for validation."""
        default = 0.1 if self.trains_q else 0.0
        return default if self.validation_fraction is None else self.validation_fraction

"""The whole procedure, from data in original units to predictions in original units.

    inducing points → regulariser P → variational Q → training → tempering → refit → calibration

Each step is a function of its own, in a module of its own; this one joins them. Its settings, with
all defaults, are in `settings`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gpflow.base import RegressionData
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood
from gpflow.utilities import deepcopy

from .._core import checks, labels
from .._core.data import Data
from ..calibration.conformal_prediction import conformal
from ..calibration.tempering import tempered_by
from ..covariances import gram
from ..divergences import Divergence
from ..gaussian_process import GaussianProcess
from ..models import GVI, PGVI
from ..regulariser.fit import Regulariser, fit_regulariser
from ..regulariser.inducing_points import Select, greedy_variance
from .early_stopping import tempered_nll
from .learned import Learned
from .q_training import BatchTraining, CompiledModel, TrainingResult
from .settings import (
    NUM_INDUCING,
    CosineAdam,
    EarlyStopping,
    ModelSettings,
    Passes,
    RegulariserSettings,
    Schedule,
    Settings,
    VariationalSettings,
    recipe_kernels,
)
from .split import Rows, Split
from .start import InducingPlusNetwork, Start, TrainingData


class Hooks:
    """What a caller may do between the steps of the procedure: nothing, unless overridden."""

    def regulariser(self, fit: Callable[[], Regulariser]) -> Regulariser:
        """Return the fitted regulariser, by calling `fit` or from where it was kept."""
        return fit()

    def compiled(
        self, model: GVI, data: TrainingData, schedule: Schedule, optimizer: Callable[[int], Any]
    ) -> CompiledModel:
        """Return the model compiled for training, or one like it that was compiled before."""
        return CompiledModel(model, optimizer(schedule.steps), schedule.steps_per_epoch)

    def callbacks(self, epochs: int) -> list[Any]:
        """Return callbacks of Keras for a training of this number of epochs."""
        return []

    def before_refit(self, learned: Learned) -> None:
        """Receive the model that has not seen the rows for validation."""


@dataclasses.dataclass(frozen=True)
class Procedure:
    """Fit P, start Q there, train, temper, refit on all rows, calibrate.

    :param split: the rows by what they are for.
    :param settings: the settings.
    :param hooks: what the caller adds.
    """

    split: Split
    settings: Settings
    hooks: Hooks = dataclasses.field(default_factory=Hooks)

    def run(self) -> Learned:
        """Return the learned model."""
        split = self.split
        validation = None if split.validation is None else split.standard(split.validation)
        data = self.training_data(split.train)
        regulariser = self.hooks.regulariser(lambda: self.fit_regulariser(data, validation))
        model, result = self.train(regulariser, data, validation)
        if validation is not None and self.settings.temper is not None:
            model = self.settings.temper(model, validation)
        learned = self.calibrated(model, regulariser, result.history)
        if not (split.holds_out and self.settings.refit):
            return learned
        self.hooks.before_refit(learned)
        return self.refit(learned, result.share)

    def training_data(self, rows: Rows) -> TrainingData:
        """Return rows in the units of the model, with the responses of latent functions to them."""
        X, Y = self.split.standard(rows)
        likelihood = self.settings.likelihood
        responses = labels.responses(likelihood, Data.of((X, Y), likelihood).Y)
        shape = self.settings.input_shape or (X.shape[-1],)
        return TrainingData(X, Y, np.asarray(responses), self.settings.seed, shape)

    def fit_regulariser(self, data: TrainingData, validation: RegressionData | None) -> Regulariser:
        """Return the regulariser of the kernel that predicts validation data best.

        Evidence alone can be misled: with many hyper-parameters there are optima of equal evidence
        that predict quite differently. Without validation data it has to do.
        """
        settings = self.settings.regulariser
        first = data.first(settings.max_rows)  # the rows are shuffled
        fits = [
            fit_regulariser(
                (first.X, first.Y),
                kernel,
                settings.count(len(data.X)),
                likelihood=self.settings.likelihood,
                evidence=settings.evidence,
                select=settings.select,
                minimise=settings.minimise,
                max_rounds=settings.max_rounds,
                seed=data.seed,
            )
            for kernel in settings.kernels(first)
        ]
        best = fits[0] if len(fits) == 1 else _best(fits, validation)
        # Evidence at the inducing points alone is that of these points.
        return best if settings.evidence.needs_inducing_outputs else self.condition(best, data)

    def condition(self, regulariser: Regulariser, data: TrainingData) -> Regulariser:
        """Return the regulariser conditioned on all rows, at points for the fitted kernel."""
        settings, prior = self.settings.regulariser, regulariser.prior
        M = settings.count(len(data.X))
        Z, indices = settings.select(data.X, M, kernel=prior.kernel, seed=data.seed)
        U = None if indices is None else data.responses[indices]
        posterior = settings.evidence.posterior(
            prior, regulariser.noise.variance, (Z, U), (data.X, data.responses)
        )
        return regulariser._replace(posterior=posterior, inducing_points=Z, inducing_outputs=U)

    def start(self, regulariser: Regulariser, data: TrainingData) -> GVI:
        """Return the model at the start of its training."""
        P = self.settings.regulariser.process(regulariser)
        Z = getattr(regulariser.posterior.kernel, "inducing_variable", None)
        start = Start(
            **vars(data),
            P=P,
            prior=regulariser.prior,
            Z=gram.as_inducing_variable(regulariser.inducing_points) if Z is None else Z,
            noise_variance=regulariser.noise.variance,
        )
        variational = self.settings.variational
        Q = GaussianProcess(variational.mean(start), variational.covariance(start))
        return self.settings.model.build(P, Q, regulariser.likelihood, data)

    def train(
        self,
        regulariser: Regulariser,
        data: TrainingData,
        validation: RegressionData | None,
        share: float = 1.0,
    ) -> tuple[GVI, TrainingResult]:
        """Return the trained model; `share` is that of the epochs to train for."""
        model = self.start(regulariser, data)
        return model, self.settings.training(model, data, validation, share=share, hooks=self.hooks)

    def refit(self, learned: Learned, share: float) -> Learned:
        """Return the model trained on all rows, for as long as was best and tempered as before."""
        data = self.training_data(self.split.fitting)
        regulariser = self.condition(learned.regulariser, data)
        model, _ = self.train(regulariser, data, None, share)
        if self.settings.temper is not None:
            model = tempered_by(model, learned.model.variational.kernel.factor)
        return self.calibrated(model, regulariser, learned.history)

    def calibrated(
        self, model: GVI, regulariser: Regulariser, history: dict[str, list[float]]
    ) -> Learned:
        """Return the model with intervals, or sets, if rows were set aside for them."""
        split = self.split
        calibration = None
        if split.calibration is not None:
            calibration = conformal(model, split.standard(split.calibration))
        return Learned(model, regulariser, split.inputs, split.outputs, history, calibration)


def _best(fits: Sequence[Regulariser], validation: RegressionData | None) -> Regulariser:
    if validation is None:
        return max(fits, key=lambda fit: fit.log_evidence)
    return min(fits, key=lambda fit: float(tempered_nll(fit.posterior, fit.likelihood, validation)))


def learn(
    data: RegressionData,
    *others: Any,
    kernel: Kernel | Sequence[Kernel] | None = None,
    network: Any = None,
    likelihood: Likelihood | None = None,
    model: type[GVI] = PGVI,
    divergence: Divergence | None = None,
    divergence_weight: float = ModelSettings.divergence_weight,
    num_inducing: int | None = None,
    select: Select = greedy_variance,
    validation_data: RegressionData | None = None,
    validation_fraction: float = Settings.validation_fraction,
    calibration_fraction: float = Settings.calibration_fraction,
    standardise: bool = Settings.standardise,
    epochs: int = Passes.epochs,
    batch_size: int = Passes.batch_size,
    learning_rate: float = CosineAdam.learning_rate,
    seed: int = Settings.seed,
) -> Learned:
    """Learn a Gaussian process from data, end to end.

    The regulariser P is the sparse posterior under the hyper-parameters of the greatest evidence.
    Q starts there, with a network that starts at zero added to its mean. Q is trained for as long
    as held-out data gain by it, and tempered with them. Rows that this function held out, and not
    the caller, then join the others: P is conditioned on all rows, Q is trained on them for as long
    as was found best, and tempered by the factor that was found.

    :param data: (X, Y), [N, D] and [N, J] or [N], in any units; Y may be labels.
    :param kernel: k of the regulariser, with the hyper-parameters to start from; of several the one
        that predicts held-out data best is taken. By default `recipe.kernels`.
    :param network: what is added to the mean of Q, a function from [N, D] to [N, J] that should be
        zero at its start. By default `recipe.network`.
    :param likelihood: the noise to start from; or a `MultiClass`, `Softmax` or `Bernoulli`, which
        says that Y are labels 0, 1, ....
    :param model: `PGVI`, `GWI` or `GVI`.
    :param divergence: D, if it is not to be the model's own; a context of it is in the units that
        the model works in (`standardise`).
    :param divergence_weight: λ.
    :param num_inducing: M, the maximal number of inducing points of P and Q; by default 200.
    :param select: how they are chosen.
    :param validation_data: (X, Y) to stop and to temper with; by default a part of the data.
    :param validation_fraction: how large a part.
    :param calibration_fraction: the part to set aside for conformal intervals, if any.
    :param standardise: whether to work in standard units, for which the defaults are made.
    :param epochs: the maximal number of epochs, each of 50 steps, or of two passes over the data if
        that is more. Held-out data are evaluated after each.
    :param batch_size: rows of a batch.
    :param learning_rate: Adam's at the start; it falls along a cosine.
    :param seed: of the split, the selection, the network and the order of batches.
    """
    if others:
        raise TypeError("learn takes X and Y as a pair, learn((X, Y)), and the rest by name.")
    checks.count("epochs", epochs, least=0)
    checks.count("batch_size", batch_size)
    if num_inducing is not None:
        checks.count("num_inducing", num_inducing)
    kernels = [kernel] if isinstance(kernel, Kernel) else kernel
    settings = Settings(
        regulariser=RegulariserSettings(
            kernels=recipe_kernels if kernels is None else lambda _: kernels,
            num_inducing=NUM_INDUCING if num_inducing is None else num_inducing,
            select=select,
        ),
        variational=VariationalSettings(mean=InducingPlusNetwork(network)),
        model=ModelSettings(
            kind=model,
            # Each training starts from the same state of its context.
            divergence=None if divergence is None else lambda _: deepcopy(divergence),
            divergence_weight=divergence_weight,
        ),
        training=BatchTraining(
            Passes(epochs, batch_size), CosineAdam(learning_rate), EarlyStopping()
        ),
        validation_fraction=validation_fraction,
        calibration_fraction=calibration_fraction,
        likelihood=likelihood,
        standardise=standardise,
        seed=seed,
    )
    return Procedure(Split.of(data, settings, validation_data), settings).run()

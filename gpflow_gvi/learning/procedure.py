"""The whole procedure, from data in original units to predictions in original units.

    inducing points → regulariser P → variational Q → training → tempering → refit → calibration

Each step is a function of its own, in a module of its own; this one joins them. Its settings, with
all defaults, are in `settings`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from gpflow import Parameter
from gpflow.base import RegressionData, TensorType
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import deepcopy

from .._core import checks, outputs, progress
from .._core.data import Data
from .._core.row_blocks import by_blocks
from ..calibration.conformal_prediction import conformal
from ..calibration.tempering import MAX_FACTOR, MIN_VALIDATION_POINTS, factors, tempered_by
from ..covariances import gram
from ..divergences import Divergence
from ..gaussian_process import GaussianProcess
from ..losses import Loss, Marginals
from ..models import GVI, PGVI
from ..regulariser.conditioning import conditioned
from ..regulariser.fit import Regulariser, fit_regulariser
from ..regulariser.inducing_points import Select, greedy_variance
from ..regulariser.leave_one_out import leave_one_out
from ..regulariser.sites import Sites, sites_of
from . import outliers, targets
from .around_network import is_meant, learn_around, require_no_choice_of_q
from .candidates import MAX_ROWS_OF_SCORES
from .cross_fitting import of_argument
from .early_stopping import tempered_nll
from .learned import Learned
from .network_training import NetworkTraining
from .parquet import ParquetRows
from .q_training import BatchTraining, CompiledModel, TrainingResult
from .settings import (
    CosineAdam,
    EarlyStopping,
    Effort,
    ModelSettings,
    Noise,
    Passes,
    Schedule,
    Settings,
    VariationalSettings,
    of_effort,
    recipe_predictors,
)
from .site_candidates import candidates_of
from .split import Rows, Split, of_labels
from .start import InducingPlusNetwork, Start, TrainingData, inducing_mean
from .streams import Stream


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
    _sites: dict[int, tuple[GaussianProcess, Sites]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def run(self) -> Learned:
        """Return the learned model, with a record of what was done."""
        return _recorded(self._run)

    def _run(self) -> Learned:
        split = self.split
        validation = None if split.validation is None else split.standard(split.validation)
        data = self.training_data(split.train, split.stream)
        regulariser = self.hooks.regulariser(lambda: self.fit_regulariser(data, validation))
        model, result = self.train(regulariser, data, validation)
        if self.settings.temper is not None:
            model = self.tempered(model, regulariser, data, validation)
        learned = self.calibrated(model, regulariser, result.history)
        if not (split.holds_out and self.settings.refit):
            return learned
        self.hooks.before_refit(learned)
        return self.refit(learned, result.share)

    def training_data(self, rows: Rows, stream: Stream | None = None) -> TrainingData:
        """Return rows in the units of the model, which may be a sample of those of a stream."""
        X, Y = self.split.standard(rows)
        likelihood = self.settings.likelihood
        responses = targets.responses(likelihood, Data.of((X, Y), likelihood))
        shape = self.settings.input_shape or (X.shape[-1],)
        settings = self.settings
        units = self.split.inputs, self.split.outputs
        if stream is not None:
            stream = dataclasses.replace(stream, prepare=self.split.standard)
        return TrainingData(
            X, Y, responses, settings.seed, shape, settings.of_classes, units, stream
        )

    def fit_regulariser(self, data: TrainingData, validation: RegressionData | None) -> Regulariser:
        """Return the regulariser that predicts best, conditioned on all rows.

        Of labels, it is the one whose kernel predicts validation data best.
        """
        settings = self.settings.regulariser
        if self._has_candidates(data):
            return self.condition(candidates_of(data, self.settings).best(), data)
        if settings.predictors not in (None, recipe_predictors) or settings.noise == "varying":
            raise ValueError(
                "predictor and noise='varying' are for real-valued Y, inputs [N, D], and noise to "
                "start from that is a number, Gaussian(variance). Leave them out here."
            )
        first = data.first(settings.max_rows)  # the rows are shuffled
        fits = [
            fit_regulariser(
                (first.X, first.Y),
                kernel,
                settings.count(len(data.X)),
                mean_function=targets.prior_mean(self.settings.likelihood, first.responses),
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

    def _has_candidates(self, data: TrainingData) -> bool:
        """Return whether P is for rows with labels or one noise of numbers, and fitted to all."""
        likelihood = self.settings.likelihood
        noise = Gaussian() if likelihood is None else likelihood
        one_noise = isinstance(noise, Gaussian) and isinstance(noise.variance, Parameter)
        to_all = not self.settings.regulariser.evidence.needs_inducing_outputs
        return (one_noise or data.of_classes) and data.X.ndim == 2 and to_all

    def condition(self, regulariser: Regulariser, data: TrainingData) -> Regulariser:
        """Return the regulariser conditioned on all rows, at points for the fitted kernel."""
        settings, prior = self.settings.regulariser, regulariser.prior
        M = settings.count(len(data.X))
        Z, indices = settings.select(data.X, M, kernel=prior.kernel, seed=data.seed)
        U = None if indices is None else data.responses[indices]
        if stream := self._stream(regulariser, data):
            noise = functools.partial(outputs.noise_variance_at, regulariser.likelihood, J=data.J)
            posterior = conditioned(prior, Z, ((X, Y, noise(X)) for X, Y in stream.blocks()))
        else:
            Y, variance = self.sites(regulariser, Z, data)
            posterior = settings.evidence.posterior(prior, variance, (Z, U), (data.X, Y))
        return regulariser._replace(posterior=posterior, inducing_points=Z, inducing_outputs=U)

    def _stream(self, regulariser: Regulariser, data: TrainingData) -> Stream | None:
        """Return the stream that P is conditioned on, if it is not on a sample."""
        return data.stream if isinstance(regulariser.likelihood, Gaussian) else None

    def sites(self, regulariser: Regulariser, Z: TensorType, data: TrainingData) -> Sites:
        """Return the Gaussian observations that P is conditioned on."""
        likelihood, prior = regulariser.likelihood, regulariser.prior
        if isinstance(likelihood, Gaussian):
            noise = outputs.noise_variance_at(likelihood, data.X, data.J)
            return Sites(data.responses, noise)
        of_prior, sites = self._sites.get(len(data.X), (None, None))
        if sites is None or of_prior is not prior:
            X, Y = Data.of((data.X, data.Y), likelihood)
            sites = sites_of(likelihood, prior, Z, (X, Y))
            self._sites[len(data.X)] = prior, sites
        return sites

    def start(self, regulariser: Regulariser, data: TrainingData) -> GVI:
        """Return the model at the start of its training."""
        P = self.settings.regulariser.process(regulariser)
        sites = self.sites(regulariser, regulariser.inducing_points, data)
        Z = getattr(regulariser.posterior.kernel, "inducing_variable", None)
        start = Start(
            **{**vars(data), "responses": np.asarray(sites.Y)},
            P=P,
            prior=regulariser.prior,
            posterior=regulariser.posterior if self._stream(regulariser, data) else None,
            Z=gram.as_inducing_variable(regulariser.inducing_points) if Z is None else Z,
            noise_variance=sites.variance,
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
        if not self.settings.trains_q:
            return model, TrainingResult()
        return model, self.settings.training(model, data, validation, share=share, hooks=self.hooks)

    def tempered(
        self,
        model: GVI,
        regulariser: Regulariser,
        data: TrainingData,
        validation: RegressionData | None,
    ) -> GVI:
        """Return the model tempered by validation data, or by each row given all the others."""
        temper = self.settings.temper
        if validation is not None and temper is not None:
            progress.now(f"tempering with {len(validation[0])} held-out rows")
            tempered = temper(model, validation)
            self._tell_scores(*(_log_densities(each, validation) for each in (model, tempered)))
            return tempered
        if self.settings.trains_q or len(data.X) < MIN_VALIDATION_POINTS:
            return model
        rows, Z = data.first(MAX_ROWS_OF_SCORES), regulariser.inducing_points
        progress.now(f"tempering with {len(rows.X)} rows, each given all the others")
        sites = self.sites(regulariser, Z, rows)
        mean, variance = leave_one_out(regulariser.prior, sites.variance, Z, (rows.X, sites.Y))
        if isinstance(model.likelihood, Gaussian):
            factor = tf.reduce_mean(tf.square(sites.Y - mean) / variance, axis=0)  # [J]
            factor = tf.clip_by_value(factor, 1.0 / MAX_FACTOR, MAX_FACTOR)
            densities = (
                tfp.distributions.Normal(mean, tf.sqrt(scale * variance)).log_prob(sites.Y)
                for scale in (tf.ones_like(factor), factor)
            )
            self._tell_scores(*(tf.reduce_sum(each, axis=1) for each in densities))
            return tempered_by(model, factor)
        X, Y = Data.of((rows.X, rows.Y), model.likelihood)
        at = Marginals(X, mean, variance - sites.variance, Y)
        return tempered_by(model, factors(model.likelihood, at))

    def _tell_scores(self, before: Any, after: Any) -> None:
        """Say what tempering has gained, as negative log densities in original units."""
        units = float(np.sum(np.log(self.split.outputs.scale)))
        before, after = (units - float(np.mean(each)) for each in (before, after))
        progress.found(nll_before=before, nll_after=after)

    def refit(self, learned: Learned, share: float) -> Learned:
        """Return the model trained on all rows, for as long as was best and tempered as before."""
        data = self.training_data(self.split.fitting)
        progress.now(f"P and Q once more, with all {len(data.X)} rows")
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
            progress.now(f"conformal scores of {len(split.calibration[0])} rows")
            calibration = conformal(model, split.standard(split.calibration))
        classes = self.settings.classes
        units = split.inputs, split.outputs
        return Learned(model, regulariser, *units, history, calibration, classes)


def _recorded(compute: Callable[[], Learned]) -> Learned:
    """Return what is computed, with a record of the stages that it tells."""
    listener = progress.Listener()
    with progress.heard_by(listener):
        learned = compute()
    return dataclasses.replace(learned, record=progress.Record(tuple(listener.stages)))


def _log_densities(model: GVI, data: RegressionData) -> Any:
    (found,) = by_blocks(lambda *rows: (model.predict_log_density(rows),), *data)
    return found


def _best(fits: Sequence[Regulariser], validation: RegressionData | None) -> Regulariser:
    if validation is None:
        return max(fits, key=lambda fit: fit.log_evidence)
    return min(fits, key=lambda fit: float(tempered_nll(fit.posterior, fit.likelihood, validation)))


def learn(
    data: RegressionData | tf.data.Dataset | ParquetRows,
    *others: Any,
    kernel: Kernel | Sequence[Kernel] | None = None,
    predictor: Any = "auto",
    noise: Noise | None = None,
    network: Any = None,
    train_network: bool = True,
    features: Any = None,
    likelihood: Likelihood | None = None,
    loss: Literal["robust"] | Loss | None = None,
    model: type[GVI] = PGVI,
    divergence: Divergence | None = None,
    divergence_weight: float | None = None,
    num_inducing: int | None = None,
    select: Select = greedy_variance,
    validation_data: RegressionData | None = None,
    validation_fraction: float | None = Settings.validation_fraction,
    calibration_fraction: float = Settings.calibration_fraction,
    standardise: bool = Settings.standardise,
    epochs: int | None = None,
    batch_size: int = Passes.batch_size,
    learning_rate: float = CosineAdam.learning_rate,
    effort: Effort = "default",
    n_jobs: int | None = None,
    seed: int = Settings.seed,
    verbose: int = 0,
) -> Learned:
    """Learn a Gaussian process from data, end to end.

    The candidates for the regulariser P are sparse posteriors, with hyper-parameters of the
    greatest evidence: of the recipe's kernels; around the predictions of trees that have not seen
    the row; and with noise that varies. What predicts each row best from all the others is taken,
    and tempered by these predictions. Q starts there, which is its optimum under Gaussian noise.

    With a `network`, labels, or anything else chosen of Q and its objective, Q is trained, with a
    network that starts at zero added to its mean, for as long as held-out data gain by it, and
    tempered with them. Rows that this function held out, and not the caller, then join the others:
    P is conditioned on all rows, Q is trained on them for as long as was found best, and tempered
    by the factor that was found.

    Data may be larger than memory: a Dataset of rows or batches, arrays of which X is memory-mapped
    (`numpy.load(file, mmap_mode="r")`), or `ParquetRows`. They are read in blocks, several times.
    Of more than 50,000 rows a uniform sample of that size, whatever their order, takes the place of
    the data: kernels, predictors, noise, inducing points, tempering and held-out rows are chosen
    from it. Standard units are those of all rows, and under Gaussian noise P is conditioned on all
    rows that are not held out; under another likelihood, on the sample. An epoch of training Q, if
    any, has as many steps as for the sample, with rows drawn anew from all of them. Held-out rows
    do not join the others in the end.

    :param data: (X, Y), [N, D] and [N, J] or [N], in any units; or data in blocks. Y may be labels:
        strings, booleans and categories are, numbers are with a likelihood of classes.
    :param kernel: k of the regulariser, with the hyper-parameters to start from; of several the one
        that predicts best is taken. By default `recipe.kernels`. Around a network, a kernel of its
        features that stays as it is; by default `feature_kernel`.
    :param predictor: what P's mean is made of: an estimator of scikit-learn, or with its `fit` and
        `predict`, or a list of such. K clones of it are fitted, each without one fold of the rows;
        m_P is the average of their predictions, and at a row of the data that of the clone which
        has not seen the row. Or a function of arrays that has seen none of the data. Or an
        estimator that is fitted already: P is then learned from `validation_data` alone, rows that
        the estimator has not been fitted to; whether that is so cannot be found out here. "auto" is
        `recipe.predictors` if neither a kernel nor anything of Q is chosen, where they predict
        better; None is none.
    :param noise: "constant", "varying" (its variance depends on x), or "auto", which takes what
        predicts best. By default it is "auto" where `predictor` is or would be, else "constant".
    :param network: for rows of numbers: what is added to the mean of Q, a function from [N, D] to
        [N, J] that should be zero at its start; by default, where Q is trained, `recipe.network`.
        For images [N, H, W, C] and other inputs that are no such rows: a model of Keras that is the
        mean of Q. It is trained first, as it is compiled or by Adam and cross entropy or squared
        errors in standard units, until held-out rows are predicted no better. The covariance of Q
        is then learned on its features (`around_network`).
    :param train_network: False to leave the network as it is: it then is the mean of Q for rows of
        numbers, too, in original units, and `validation_data` should be rows unseen by it.
    :param features: what the kernel is on, around a network: "penultimate", what its last layer
        receives, by default; the name of a layer; "inputs"; another model; or a list of such.
    :param likelihood: the noise to start from; a `MultiClass`, `Softmax` or `Bernoulli`, which says
        that Y are labels, and is the default of names (`Bernoulli` of two classes, else `Softmax`);
        or any other of GPflow's likelihoods, for counts, amounts,
        fractions, levels, or noise of heavy tails. Parameters of noise are in standard units. Y
        that have no unit, as counts, are not standardised.
    :param loss: "robust" finds rows of real-valued Y that say nothing of the function (`outliers`
        of the result) by a likelihood that allows for them, and learns from the others. Or the loss
        that Q is trained with, such as `losses.GammaLoss()`.
    :param model: `PGVI`, `GWI` or `GVI`.
    :param divergence: D, if it is not to be the model's own; a context of it is in the units that
        the model works in (`standardise`).
    :param divergence_weight: λ; by default 0.1.
    :param num_inducing: M, the maximal number of inducing points of P and Q; by default 200.
    :param select: how they are chosen.
    :param validation_data: (X, Y) to stop and to temper with; by default a part of the data.
    :param validation_fraction: how large a part; by default a tenth where Q is trained, or none.
    :param calibration_fraction: the part to set aside for conformal intervals, if any.
    :param standardise: whether to work in standard units, for which the defaults are made.
    :param epochs: the maximal number of epochs of training Q, each of 50 steps, or of two passes
        over the data if that is more; held-out data are evaluated after each. By default 20 where
        Q is trained.
    :param batch_size: rows of a batch.
    :param learning_rate: Adam's at the start; it falls along a cosine.
    :param effort: "fast" fits one squared exponential, without trees; "default" is described
        above; "best" fits hyper-parameters to more rows and for longer, and takes more folds.
    :param n_jobs: how many predictors are fitted at once, as joblib has it.
    :param seed: of the split, the selection, the folds, the network and the order of batches.
    :param verbose: 1 to print what is done now and how long it took; 0 for nothing. `summary()` of
        the result tells it afterwards.
    """
    if others:
        raise TypeError("learn takes X and Y as a pair, learn((X, Y)), and the rest by name.")
    if epochs is not None:
        checks.count("epochs", epochs, least=0)
    checks.count("batch_size", batch_size)
    if num_inducing is not None:
        checks.count("num_inducing", num_inducing)
    checks.one_of("noise", noise, (None, *get_args(Noise)))
    checks.one_of("effort", effort, get_args(Effort))
    chosen = (network, divergence, divergence_weight, epochs) != (None, None, None, None)
    chosen = chosen or model is not PGVI or isinstance(loss, Loss)
    by_recipe = isinstance(predictor, str) and kernel is None and not chosen and effort != "fast"
    predictors, rows, validation_data = of_argument(predictor, by_recipe, data, validation_data)
    is_around = is_meant(network, features, train_network, data)
    rows, validation_data, of_names, classes = of_labels(rows, validation_data, likelihood)
    likelihood = likelihood if is_around else of_names  # a network says by itself what it is for
    kernels = [kernel] if isinstance(kernel, Kernel) else kernel
    regulariser = of_effort(effort)
    schedule = Passes(Passes.epochs if epochs is None else epochs, batch_size)
    settings = Settings(
        regulariser=dataclasses.replace(
            regulariser,
            kernels=regulariser.kernels if kernels is None else lambda _: kernels,
            num_inducing=regulariser.num_inducing if num_inducing is None else num_inducing,
            predictors=predictors,
            noise=noise or ("auto" if by_recipe else "constant"),
            select=select,
            n_jobs=n_jobs,
        ),
        variational=VariationalSettings(InducingPlusNetwork(network) if chosen else inducing_mean),
        model=ModelSettings(
            kind=model,
            # Each training starts from the same state of its context.
            divergence=None if divergence is None else lambda _: deepcopy(divergence),
            loss=(lambda: loss) if isinstance(loss, Loss) else None,
            divergence_weight=(
                ModelSettings.divergence_weight if divergence_weight is None else divergence_weight
            ),
        ),
        training=BatchTraining(schedule, CosineAdam(learning_rate), EarlyStopping()),
        validation_fraction=validation_fraction,
        calibration_fraction=calibration_fraction,
        likelihood=likelihood,
        classes=classes,
        standardise=standardise,
        seed=seed,
    )
    with progress.spoken(verbose):
        if is_around:
            require_no_choice_of_q(
                model=None if model is PGVI else model,
                divergence=divergence,
                divergence_weight=divergence_weight,
                predictor=None if isinstance(predictor, str) else predictor,
                loss=loss,
                noise=noise,
                epochs=None if train_network else epochs,
            )
            training = NetworkTraining(schedule, learning_rate, EarlyStopping(), seed)
            around = functools.partial(
                learn_around,
                rows,
                network,
                settings,
                features=features,
                kernel=kernel,
                training=training if train_network else None,
                validation_data=validation_data,
            )
            return dataclasses.replace(_recorded(around), classes_=classes)
        if loss is None or isinstance(loss, Loss):
            return Procedure(Split.of(rows, settings, validation_data), settings).run()
        found = _outliers(rows, settings, loss)
        keep = np.delete(np.arange(len(rows[0])), found.rows)
        rows = tuple(np.asarray(part)[keep] for part in rows)
        learned = Procedure(Split.of(rows, settings, validation_data), settings).run()
        return dataclasses.replace(learned, outliers=found)


def _outliers(rows: RegressionData, settings: Settings, loss: str) -> outliers.Outliers:
    checks.one_of("loss", loss, ("robust", None))
    if not (settings.likelihood is None or isinstance(settings.likelihood, Gaussian)):
        raise TypeError(
            f"loss='robust' is for real-valued Y under Gaussian noise, but likelihood is "
            f"{type(settings.likelihood).__name__}. Leave out one of them; StudentT() is a "
            "likelihood of heavy tails."
        )
    return outliers.find(rows, settings.regulariser, settings.seed)

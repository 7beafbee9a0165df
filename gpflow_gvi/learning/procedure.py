"""The whole procedure, from data in original units to predictions in original units.

    inducing points → regulariser P → variational Q → training → tempering → refit → calibration

Each step is a function of its own, in a module of its own; this one joins them. Its settings, with
all defaults, are in `settings`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData, TensorType
from gpflow.functions import MeanFunction

from .._core import outputs, progress
from .._core.data import Data
from .._core.row_blocks import by_blocks
from ..calibration.conformal_prediction import conformal
from ..calibration.tails import with_df, with_tails, with_tails_of
from ..calibration.tempering import (
    MAX_FACTOR,
    MIN_VALIDATION_POINTS,
    factor_of_errors,
    factors,
    tempered_by,
)
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..likelihoods import has_constant_noise, is_gaussian, with_moments
from ..losses import Marginals
from ..models import GVI
from ..regulariser.conditioning import conditioned
from ..regulariser.fit import Judged, Regulariser, fit_regulariser
from ..regulariser.leave_one_out import leave_one_out
from ..regulariser.sites import Sites, sites_of
from .data import groups_of
from .early_stopping import tempered_nll
from .fit import Fits
from .fit_by_evidence import MAX_ROWS_OF_SCORES, EvidenceFits
from .fit_by_sites import SiteFits
from .hooks import Hooks
from .judge import members
from .learned import Learned
from .pooled import Pooled
from .q_training import TrainingResult
from .rows import targets
from .rows.log_scale import LogScale
from .rows.split import Rows, Split
from .rows.streams import Stream
from .settings import RECIPE, Settings
from .start import Start, TrainingData


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
        return recorded(self._run)

    def _run(self) -> Learned:
        split = self.split
        validation = None if split.validation is None else split.standard(split.validation)
        data = self.training_data(split.train, split.stream)
        progress.now(f"{data.num_rows} rows")
        unused = data.D - len(data.features)
        if unused and self.settings.regulariser.kernels is None:
            progress.found(unused_columns=unused)
        progress.found(**split.notes)
        if self._may_pool(data, validation):
            return self._pooled(data)
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
        """Return the regulariser that predicts best, conditioned on all rows."""
        settings = self.settings.regulariser
        if self._has_candidates(data):
            judges = validation is None and not self.settings.trains_q
            judges = judges and self.settings.temper is not None
            judges = judges and len(data.X) >= MIN_VALIDATION_POINTS
            (only,) = members([self._fits(data)], is_free=False, mixes=False, judges=judges)
            return self.condition(only.regulariser, data)
        if settings.predictors not in (None, RECIPE) or settings.noise == "varying":
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
                mean_function=self._mean(first),
                likelihood=self.settings.likelihood,
                evidence=settings.evidence,
                select=settings.select,
                minimise=settings.minimise,
                max_rounds=settings.max_rounds,
                seed=data.seed,
            )
            for kernel in settings.kernels_for(first)
        ]
        best = fits[0] if len(fits) == 1 else _best(fits, validation)
        # Evidence at the inducing points alone is that of these points.
        return best if settings.evidence.needs_inducing_outputs else self.condition(best, data)

    def _fits(self, data: TrainingData) -> Fits:
        """Return the fits of candidates under the likelihood."""
        if is_gaussian(self.settings.likelihood):
            return EvidenceFits(data, self.settings)
        return SiteFits(data, self.settings)

    def _may_pool(self, data: TrainingData, validation: RegressionData | None) -> bool:
        """Return True if several candidates are compared by fits without some of the rows."""
        settings = self.settings
        is_whole = validation is None and self.split.calibration is None
        may = settings.pool and is_whole and not settings.trains_q and settings.temper is not None
        return may and self._has_candidates(data)

    def _pooled(self, data: TrainingData) -> Learned:
        """Return the candidates that predict best together, or the best one."""
        of_numbers = is_gaussian(self.settings.likelihood)
        mixes = of_numbers or self.settings.of_classes
        scales = [(self, self._fits(data))]
        if (of_logs := self._on_log_scale()) is not None:
            logs = of_logs.training_data(of_logs.split.train, of_logs.split.stream)
            scales.append((of_logs, of_logs._fits(logs)))
        found = members([fits for _, fits in scales], is_free=True, mixes=mixes, judges=True)
        parts = [
            procedure._finished(member.regulariser, fits.data)
            for member in found
            for procedure, fits in scales
            if fits is member.by
        ]
        if len(parts) == 1:
            return parts[0]
        return Pooled.of(tuple(parts), tuple(member.weight for member in found))

    def _on_log_scale(self) -> Procedure | None:
        """Return the procedure for log y, if y is positive and not given another likelihood."""
        settings, Y = self.settings, self.split.train[1]
        if settings.likelihood is not None or not settings.standardise:
            return None
        if settings.regulariser.predictors not in (None, RECIPE) or np.min(Y) <= 0.0:
            return None
        if np.min(np.max(Y, axis=0) / np.min(Y, axis=0)) < settings.regulariser.recipe.log_ratio:
            return None
        split = dataclasses.replace(self.split, outputs=LogScale.of(Y))
        return dataclasses.replace(self, split=split)

    def _finished(self, found: Regulariser, data: TrainingData) -> Learned:
        """Return P as a model: conditioned on all rows, and tempered."""
        regulariser = self.condition(found, data)
        model = self.tempered(self.start(regulariser, data), regulariser, data, None)
        return self.calibrated(model, regulariser, {})

    def _mean(self, data: TrainingData) -> MeanFunction:
        """Return m_P to start from."""
        given = self.settings.regulariser.mean
        if given is not None:
            return given(data)
        return targets.prior_mean(self.settings.likelihood, data.responses)

    def _has_candidates(self, data: TrainingData) -> bool:
        """Return True if P is fitted to all rows, with neither noise nor a mean given."""
        if self.settings.regulariser.mean is not None:
            return False
        noise = self.settings.likelihood
        given = is_gaussian(noise) and not has_constant_noise(noise)
        to_all = not self.settings.regulariser.evidence.needs_inducing_outputs
        return not given and data.X.ndim == 2 and to_all

    def condition(self, regulariser: Regulariser, data: TrainingData) -> Regulariser:
        """Return the regulariser conditioned on all rows, at points for the fitted kernel."""
        settings, prior = self.settings.regulariser, regulariser.prior
        M = max(settings.count(len(data.X)), len(regulariser.inducing_points))
        Z, indices = settings.select(data.X, M, kernel=prior.kernel, seed=data.seed)
        U = None if indices is None else data.responses[indices]
        if stream := self._stream(regulariser, data):
            noise = functools.partial(outputs.noise_variance_at, regulariser.likelihood, J=data.J)
            posterior = conditioned(prior, Z, ((X, Y, noise(X)) for X, Y in stream.blocks()))
        else:
            Y, variance = self.sites(regulariser, Z, data)
            if is_gaussian(regulariser.likelihood):
                posterior = settings.evidence.posterior(prior, variance, (Z, U), (data.X, Y))
            else:
                posterior = conditioned(prior, Z, [(data.X, Y, variance)])
        return regulariser._replace(posterior=posterior, inducing_points=Z, inducing_outputs=U)

    def _stream(self, regulariser: Regulariser, data: TrainingData) -> Stream | None:
        """Return the stream that P is conditioned on, if it is not on a sample."""
        return data.stream if is_gaussian(regulariser.likelihood) else None

    def sites(self, regulariser: Regulariser, Z: TensorType, data: TrainingData) -> Sites:
        """Return the Gaussian observations that P is conditioned on."""
        likelihood, prior = regulariser.likelihood, regulariser.prior
        if is_gaussian(likelihood):
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
        is_of_points = self.settings.regulariser.evidence.needs_inducing_outputs
        fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
        start = Start(
            **{**fields, "responses": np.asarray(sites.Y)},
            P=P,
            prior=regulariser.prior,
            posterior=None if is_of_points else regulariser.posterior,
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
            if self._may_have_tails(tempered):
                mean, variance = by_blocks(tempered.predict_y, validation[0])
                tempered = with_tails(tempered, np.square(validation[1] - mean) / variance)
            self._tell_scores(*(_log_densities(each, validation) for each in (model, tempered)))
            return tempered
        if regulariser.judged is not None and not self.settings.trains_q:
            return self._as_judged(model, regulariser.judged)
        if self.settings.trains_q or len(data.X) < MIN_VALIDATION_POINTS:
            return model
        rows, Z = data.first(MAX_ROWS_OF_SCORES), regulariser.inducing_points
        progress.now(f"tempering with {len(rows.X)} rows, each given all the others")
        sites, groups = self.sites(regulariser, Z, rows), groups_of(rows.X)
        observed = rows.X, sites.Y
        mean, variance = leave_one_out(regulariser.prior, sites.variance, Z, observed, groups)
        if is_gaussian(model.likelihood):
            factor = factor_of_errors(sites.Y, mean, variance)
            factor = tf.clip_by_value(factor, 1.0 / MAX_FACTOR, MAX_FACTOR)
            tempered = tempered_by(model, factor)
            if self._may_have_tails(tempered):
                errors = tf.square(sites.Y - mean) / (factor * variance)
                tempered = with_tails(tempered, errors.numpy())
            laws = (
                with_moments(model.likelihood, mean, variance),
                with_moments(tempered.likelihood, mean, factor * variance),
            )
            self._tell_scores(*(tf.reduce_sum(law.log_prob(sites.Y), axis=1) for law in laws))
            return tempered
        X, Y = Data.of((rows.X, rows.Y), model.likelihood)
        at = Marginals(X, mean, variance - sites.variance, Y)
        return tempered_by(model, factors(model.likelihood, at))

    def _as_judged(self, model: GVI, judged: Judged) -> GVI:
        """Return the model tempered as predictions of rows that it has not seen say."""
        progress.now(f"tempering with {judged.num_rows} rows that fits have not seen")
        units = self._units
        progress.found(nll_before=units + judged.nll_before, nll_after=units + judged.nll_after)
        tempered = tempered_by(model, judged.factor)
        if judged.df is None or not self._may_have_tails(tempered):
            return tempered
        return with_df(tempered, judged.df)

    @property
    def _units(self) -> float:
        """What to add to a negative log density in standard units for that in original units."""
        of_rows = self.split.outputs.log_derivative(self.split.standard(self.split.train)[1])
        return -float(np.mean(of_rows))

    def _may_have_tails(self, model: GVI) -> bool:
        noise = model.likelihood
        has_variance = is_gaussian(noise) and noise.variance is not None
        return has_variance and self.settings.regulariser.has_heavy_tails

    def _tell_scores(self, before: Any, after: Any) -> None:
        """Say what tempering has gained, as negative log densities in original units."""
        before, after = (self._units - float(np.mean(each)) for each in (before, after))
        progress.found(nll_before=before, nll_after=after)

    def refit(self, learned: Learned, share: float) -> Learned:
        """Return the model trained on all rows, for as long as was best and tempered as before."""
        data = self.training_data(self.split.fitting)
        progress.now(f"P and Q once more, with all {len(data.X)} rows")
        regulariser = self.condition(learned.regulariser, data)
        model, _ = self.train(regulariser, data, None, share)
        if self.settings.temper is not None:
            model = tempered_by(model, learned.model.variational.kernel.factor)
            model = with_tails_of(model, learned.likelihood)
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


def recorded(compute: Callable[[], Learned]) -> Learned:
    """Return the result of a computation, with a record of the stages that it reports."""
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

"""The end of the procedure: P is conditioned, Q starts there, is trained, tempered, calibrated."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.utilities import multiple_assign, read_values

from .._core import outputs, progress
from .._core.data import Data
from .._core.row_blocks import by_blocks
from .._core.tensorflow_private import untrained
from ..calibration import tails
from ..calibration.conformal_prediction import conformal
from ..calibration.tempering import MAX_FACTOR, MIN_VALIDATION_POINTS, tempered_by
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from ..likelihoods import degrees_of_freedom, is_gaussian
from ..models import GVI
from ..regulariser.conditioning import conditioned
from ..regulariser.fit import Judged, Regulariser
from ..regulariser.leave_one_out import leave_one_out
from ..regulariser.site_fit import sites_of
from ..regulariser.sites import Sites, left_out
from .learned import Learned
from .q_training import Hooks, TrainingResult
from .row_facts import left_out_together
from .rows import targets
from .rows.split import Rows, Split
from .rows.streams import Stream
from .score import Calibration, Predictions, constant_nll, score, warn_of_useless
from .settings import Settings, VariationalSettings
from .start import Start, TrainingData, going_on_from

Validation = RegressionData | None

SHARE_OF_REFIT = 0.1
"""The length of training a network with all rows, relative to that with those not held out."""


@dataclasses.dataclass(frozen=True)
class Finish:
    """What is done once P is fitted, in the units of the split."""

    split: Split
    settings: Settings
    hooks: Hooks
    _sites: dict[int, tuple[GaussianProcess, Sites]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def finished(
        self, regulariser: Regulariser, data: TrainingData, validation: Validation = None
    ) -> Learned:
        """Return the model around a conditioned P: Q trained and tempered, then calibrated.

        Rows that were held out for validation join the others in the end.
        """
        trained, result = self.train(regulariser, data, validation, 1.0)
        model = self.tempered(trained, regulariser, data, validation)
        learned = self.calibrated(model, regulariser, result.history)
        if not (self.split.holds_out and self.settings.refit):
            return learned
        self.hooks.before_refit(learned)
        return self.refit(learned, trained, result.share)

    def training_data(self, rows: Rows, stream: Stream | None = None) -> TrainingData:
        """Return rows in the units of the model, which may be a sample of those of a stream."""
        X, Y = self.split.standard(rows)
        settings, likelihood = self.settings, self.settings.likelihood
        if stream is not None:
            stream = dataclasses.replace(stream, prepare=self.split.standard)
        return TrainingData(
            X,
            Y,
            targets.responses(likelihood, Data.of((X, Y), likelihood)),
            settings.seed,
            settings.input_shape or (X.shape[-1],),
            settings.of_classes,
            (self.split.inputs, self.split.outputs),
            stream,
            self.split.weights,
        )

    def condition(
        self, regulariser: Regulariser, data: TrainingData, *, has_points: bool = False
    ) -> Regulariser:
        """Return the regulariser conditioned on all rows, at points for the fitted kernel.

        :param has_points: whether it stays at the points that it has.
        """
        settings, prior = self.settings.regulariser, regulariser.prior
        Z, U = regulariser.inducing_points, regulariser.inducing_outputs
        if not has_points:
            M = max(settings.count(len(data.X)), len(Z))
            Z, indices = settings.points(data, M, prior.kernel)
            U = None if indices is None else data.responses[indices]
        is_of_numbers = is_gaussian(regulariser.likelihood)
        if is_of_numbers and data.stream is not None:  # all rows, and not a sample of them
            noise = functools.partial(outputs.noise_variance_at, regulariser.likelihood, J=data.J)
            posterior = conditioned(prior, Z, ((X, Y, noise(X)) for X, Y in data.stream.blocks()))
        else:
            Y, variance = self.sites(regulariser, Z, data)
            if is_of_numbers:
                posterior = settings.evidence.posterior(prior, variance, (Z, U), (data.X, Y))
            else:
                posterior = conditioned(prior, Z, [(data.X, Y, variance)])
        return regulariser._replace(posterior=posterior, inducing_points=Z, inducing_outputs=U)

    def sites(self, regulariser: Regulariser, Z: TensorType, data: TrainingData) -> Sites:
        """Return the Gaussian observations that P is conditioned on."""
        likelihood, prior = regulariser.likelihood, regulariser.prior
        if is_gaussian(likelihood):
            noise = outputs.noise_variance_at(likelihood, data.X, data.J)
            if data.weights is not None:
                noise = noise * data.relative_noise
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
        mean = self.hooks.mean(lambda: variational.mean(start))
        Q = GaussianProcess(mean, variational.covariance(start))
        return self.settings.model.build(P, Q, regulariser.likelihood, data)

    def train(
        self, regulariser: Regulariser, data: TrainingData, validation: Validation, share: float
    ) -> tuple[GVI, TrainingResult]:
        """Return the trained model; `share` is that of the epochs to train for."""
        model = self.start(regulariser, data)
        if not self.settings.trains_q:
            return model, TrainingResult()
        return model, self.settings.training(model, data, validation, share=share, hooks=self.hooks)

    def tempered(
        self, model: GVI, regulariser: Regulariser, data: TrainingData, validation: Validation
    ) -> GVI:
        """Return the model tempered by validation data, or by each row given all the others."""
        temper = self.settings.temper
        if temper is None:
            return model
        if validation is not None:
            progress.now(f"tempering with {len(validation[0])} held-out rows")
            tempered = temper(model, validation)
            if _may_have_tails(model, self.settings):
                tempered = _with_tails(model, validation)
            before, after = (_log_densities(each, validation) for each in (model, tempered))
            _tell_gain(self._shift, -float(np.mean(before)), -float(np.mean(after)))
            self._compare_with_constant(after, model.likelihood, validation)
            return tempered
        if self.settings.trains_q:
            return model
        judged = regulariser.judged or self._left_out(regulariser, data)
        if judged is None:
            return model
        progress.now(f"tempering with {judged.num_rows} rows that fits have not seen")
        _tell_gain(self._shift, judged.nll_before, judged.nll_after)
        tempered = tempered_by(model, judged.factor)
        if judged.df is None or not _may_have_tails(tempered, self.settings):
            return tempered
        return tails.with_df(tempered, judged.df)

    def _left_out(self, regulariser: Regulariser, data: TrainingData) -> Judged | None:
        """Return the factor by which each group of rows, given all others, is predicted best.

        There is none if there are few rows.
        """
        if len(data.X) < MIN_VALIDATION_POINTS:
            return None
        recipe = self.settings.regulariser.recipe
        rows, likelihood = data.first(recipe.max_rows_of_scores), regulariser.likelihood
        Z, groups = regulariser.inducing_points, left_out_together(rows.X)
        sites = self.sites(regulariser, Z, rows)
        observed = rows.X, sites.Y
        mean, variance = leave_one_out(regulariser.prior, sites.variance, Z, observed, groups)
        X, Y = Data.of((rows.X, rows.Y), likelihood)
        if is_gaussian(likelihood):
            Y = sites.Y
        else:
            mean, variance = left_out((mean, variance), sites)
        of_each = (np.asarray(part) for part in (mean[None], variance[None], Y, X))
        return score(
            likelihood,
            Predictions(*of_each),
            spacing=np.full(np.shape(Y), np.inf),
            tails=self.settings.regulariser.has_heavy_tails,
            max_factor=MAX_FACTOR,
        ).judged

    def _compare_with_constant(
        self, log_densities: AnyNDArray, likelihood: Likelihood, held_out: RegressionData
    ) -> None:
        """Say how what held-out rows have in common predicts them, and warn if that is better."""
        _, Y = Data.of(held_out, likelihood)
        of_constant = constant_nll(likelihood, Y, np.full(Y.shape, np.inf))
        progress.found(of_constant=self._shift + of_constant)
        recipe = self.settings.regulariser.recipe
        warn_of_useless(log_densities, of_constant, recipe, self._shift)

    @property
    def _shift(self) -> float:
        """What negative log densities are larger by in original units."""
        _, Y = self.split.standard(self.split.train)
        return -float(np.mean(self.split.outputs.log_derivative(Y)))

    def refit(self, learned: Learned, trained: GVI, share: float) -> Learned:
        """Return the model trained on all rows, for as long as was best and tempered as before.

        A network in m_Q goes on from where it was best, and briefly: trained anew it would be
        another function than the one that was judged. The covariance and the likelihood that were
        trained with it stay, as the factor by which predictions are tempered is theirs.

        :param trained: the model before it was tempered.
        """
        data = self.training_data(self.split.fitting)
        progress.now(f"P and Q once more, with all {len(data.X)} rows")
        going_on = going_on_from(trained.variational)
        regulariser = self.condition(learned.regulariser, data, has_points=going_on is not None)
        if going_on is None:
            model, _ = self.train(regulariser, data, None, share)
        else:
            finish, share = _with_q(self, VariationalSettings(*going_on)), SHARE_OF_REFIT * share
            model = finish.start(regulariser, data)
            multiple_assign(model.likelihood, read_values(trained.likelihood))
            as_judged = model.variational.kernel, model.likelihood
            with untrained(each for part in as_judged for each in part.variables):
                self.settings.training(model, data, None, share=share, hooks=self.hooks)
        if self.settings.temper is not None:
            model = tempered_by(model, learned.model.variational.kernel.factor)
            model = tails.with_df(model, degrees_of_freedom(learned.likelihood))
        return self.calibrated(model, regulariser, learned.history)

    def calibrated(
        self, model: GVI, regulariser: Regulariser, history: dict[str, list[float]]
    ) -> Learned:
        """Return the model with intervals, or sets, if rows were set aside for them."""
        split, calibration = self.split, None
        if split.calibration is not None:
            progress.now(f"conformal scores of {len(split.calibration[0])} rows")
            calibration = conformal(model, split.standard(split.calibration))
        units = split.inputs, split.outputs
        return Learned(model, regulariser, *units, history, calibration, self.settings.classes)


def _may_have_tails(model: GVI, settings: Settings) -> bool:
    noise = model.likelihood
    has_variance = is_gaussian(noise) and noise.variance is not None
    return has_variance and settings.regulariser.has_heavy_tails


def _tell_gain(shift: float, before: float, after: float) -> None:
    """Say what tempering gains: negative log densities, which a shift has in original units."""
    progress.found(nll_before=shift + before, nll_after=shift + after)


def _log_densities(model: GVI, data: RegressionData) -> Any:
    (found,) = by_blocks(lambda *rows: (model.predict_log_density(rows),), *data)
    return found


def _with_q(finish: Finish, variational: VariationalSettings) -> Finish:
    """Return the same finish, with other constructors of what Q starts with."""
    settings = dataclasses.replace(finish.settings, variational=variational)
    return dataclasses.replace(finish, settings=settings)


def _with_tails(model: GVI, validation: RegressionData) -> GVI:
    """Return the model with the factor and the tails of validation data.

    A few of their errors may make up most of the mean square, so that the factor depends on ν.
    """
    mean, variance = by_blocks(model.predict_y, validation[0])
    unseen = Predictions(mean[None], variance[None], np.asarray(validation[1]))
    found = Calibration.of(unseen, tails=True, max_factor=MAX_FACTOR)
    return tails.with_df(tempered_by(model, found.factor), found.df)

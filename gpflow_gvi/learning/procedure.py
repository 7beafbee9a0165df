"""The whole procedure, from data in original units to predictions in original units.

    inducing points → regulariser P → variational Q → training → tempering → refit → calibration

Each step is a function of its own, in a module of its own; this one joins them. Its settings, with
all defaults, are in `settings`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from gpflow.base import RegressionData

from .._core import progress
from .._core.threads import one_thread
from ..likelihoods import has_constant_noise, is_gaussian
from ..regulariser.fit import Regulariser, fit_regulariser
from .candidates import Fits
from .early_stopping import tempered_losses
from .finish import Finish
from .fit_by_evidence import EvidenceFits
from .fit_by_sites import SiteFits
from .judge import members
from .learned import Learned
from .pooled import mixture
from .q_training import Hooks
from .row_facts import left_out_together
from .rows import targets
from .rows.log_scale import LogScale
from .rows.split import Split
from .settings import RECIPE, Settings
from .start import TrainingData


@dataclasses.dataclass(frozen=True)
class Procedure:
    """Fit P, start Q there, train, temper, refit on all rows, calibrate."""

    split: Split
    settings: Settings
    hooks: Hooks = dataclasses.field(default_factory=Hooks)

    @functools.cached_property
    def finish(self) -> Finish:
        """What is done once P is fitted."""
        return Finish(self.split, self.settings, self.hooks)

    def run(self) -> Learned:
        """Return the learned model, with a record of what was done."""
        with one_thread("blas", len(self.split.train[0])):
            return recorded(self._run)

    def _run(self) -> Learned:
        split = self.split
        validation = split.standard_validation
        data = self.finish.training_data(split.train, split.stream)
        progress.now(f"{data.num_rows} rows")
        unused = data.D - len(data.features)
        if unused and self.settings.regulariser.kernels is None:
            progress.found(unused_columns=unused)
        progress.found(**split.notes)
        if "repeated" in split.notes and len(np.unique(left_out_together(data.X))) == len(data.X):
            progress.found(apart=True)
        if self.settings.pool and self._tempers and self._has_candidates(data):
            return self._pooled(data)
        regulariser = self.hooks.regulariser(lambda: self.fit_regulariser(data, validation))
        return self.finish.finished(regulariser, data, validation)

    def fit_regulariser(self, data: TrainingData, validation: RegressionData | None) -> Regulariser:
        """Return the regulariser that predicts best, conditioned on all rows."""
        settings = self.settings.regulariser
        if self._has_candidates(data):
            judges = validation is None and self._tempers and len(data.X) > 1
            (only,) = members([self._fits(data)], is_free=False, mixes=False, judges=judges)
            return self.finish.condition(only.regulariser, data)
        if settings.predictors not in (None, RECIPE) or settings.noise == "varying":
            raise ValueError(
                "predictor and noise='varying' are for real-valued Y, inputs [N, D], and noise to "
                "start from that is a number, Gaussian(variance). Leave them out here."
            )
        first = data.first(settings.max_rows)  # the rows are shuffled
        likelihood = self.settings.likelihood
        mean = settings.mean or (lambda rows: targets.prior_mean(likelihood, rows.responses))
        fits = [
            fit_regulariser(
                (first.X, first.Y),
                kernel,
                settings.count(len(data.X)),
                mean_function=mean(first),
                likelihood=likelihood,
                evidence=settings.evidence,
                select=settings.select,
                minimise=settings.minimise,
                max_rounds=settings.max_rounds,
                seed=data.seed,
            )
            for kernel in settings.kernels_for(first)
        ]
        if validation is None or len(fits) == 1:
            best = max(fits, key=lambda fit: fit.log_evidence)
        else:
            best = min(fits, key=lambda fit: _held_out_nll(fit, validation))
        if settings.evidence.needs_inducing_outputs:  # it is that of these points
            return best
        return self.finish.condition(best, data)

    def _fits(self, data: TrainingData) -> Fits:
        """Return the fits of candidates under the likelihood."""
        if is_gaussian(self.settings.likelihood):
            return EvidenceFits(data, self.settings)
        return SiteFits(data, self.settings)

    @property
    def _tempers(self) -> bool:
        """Whether P is Q as it is, and tempered."""
        return not self.settings.trains_q and self.settings.temper is not None

    def _pooled(self, data: TrainingData) -> Learned:
        """Return the candidates that predict best together, or the best one.

        One alone is tempered and calibrated by rows that are set aside.
        """
        mixes = is_gaussian(self.settings.likelihood) or self.settings.of_classes
        mixes = mixes and not self.split.set_aside
        scales = [(self.finish, self._fits(data))]
        if (of_logs := self._on_log_scale()) is not None:
            logs = of_logs.training_data(of_logs.split.train, of_logs.split.stream)
            scales.append((of_logs, self._fits(logs)))
        found = members([fits for _, fits in scales], is_free=True, mixes=mixes, judges=True)
        parts = [
            finish.finished(
                finish.condition(member.regulariser, fits.data),
                fits.data,
                finish.split.standard_validation,
            )
            for member in found
            for finish, fits in scales
            if fits is member.by
        ]
        if len(parts) == 1:
            return parts[0]
        return mixture(tuple(parts), tuple(member.weight for member in found))

    def _on_log_scale(self) -> Finish | None:
        """Return the finish for log y, if y is positive and not given another likelihood."""
        settings, Y = self.settings, self.split.train[1]
        if settings.likelihood is not None or not settings.standardise:
            return None
        if settings.regulariser.predictors not in (None, RECIPE) or any(
            np.min(y) <= 0.0 for _, y in [self.split.train, *self.split.set_aside]
        ):
            return None
        recipe = settings.regulariser.recipe
        if len(Y) < recipe.min_rows_of_logs:
            return None
        if np.min(np.max(Y, axis=0) / np.min(Y, axis=0)) < recipe.log_ratio:
            return None
        split = dataclasses.replace(self.split, outputs=LogScale.of(Y))
        return Finish(split, self.settings, self.hooks)

    def _has_candidates(self, data: TrainingData) -> bool:
        """Return True if P is fitted to all rows, with neither noise nor a mean given."""
        if self.settings.regulariser.mean is not None:
            return False
        noise = self.settings.likelihood
        given = is_gaussian(noise) and not has_constant_noise(noise)
        to_all = not self.settings.regulariser.evidence.needs_inducing_outputs
        return not given and data.X.ndim == 2 and to_all


def _held_out_nll(fit: Regulariser, validation: RegressionData) -> float:
    losses = tempered_losses(fit.posterior, fit.likelihood, validation)
    return float(np.mean(losses))


def recorded(compute: Callable[[], Learned]) -> Learned:
    """Return the result of a computation, with a record of the stages that it reports."""
    listener = progress.Listener()
    with progress.heard_by(listener):
        learned = compute()
    return dataclasses.replace(learned, record=progress.Record(tuple(listener.stages)))

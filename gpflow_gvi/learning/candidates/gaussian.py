"""The candidates for the regulariser P under Gaussian noise.

P is a Gaussian process with one of several kernels; the same around the cross-fitted predictions of
other models, m_P = Σ w_c h_c with weights fitted by the evidence; and each of them with noise that
varies with the input. Evidence alone can be misled: with many hyper-parameters there are optima of
equal evidence that predict quite differently.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.functions import Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from scipy.optimize import nnls

from ..._core import outputs, progress
from ..._core.graphs import deepcopy
from ...covariances import gram
from ...gaussian_process import GaussianProcess
from ...mean_functions.predictor import Predictor
from ...regulariser.evidence import DataEvidence, InducingEvidence
from ...regulariser.evidence_fit import EvidenceFit, Rows, assign
from ...regulariser.fit import Regulariser, Round
from ...regulariser.leave_one_out import leave_one_out, leave_one_out_of_all
from .. import recipe
from ..data import groups_of
from ..rows.scaling import Scaling, exactly_original
from ..settings import Settings, recipe_kernels
from ..start import TrainingData
from ..summary import described
from .candidate import Candidates, best_of, near_best, scaled
from .cross_fitting import CrossFits
from .gaussian_candidate import GaussianCandidate, density_constant
from .kept_fits import evidence_fit
from .points import Points
from .promising import MAX_ERROR_RATIO, have_small_errors, useful
from .varying_noise import MAX_RATIO, MAX_VARIANCE, MIN_RATIO, VaryingNoise, gain

MIN_ROWS_OF_HALF = 700
"""The exact evidence of as many rows is first maximised for half of them, whose factorisation takes
an eighth of the operations."""

MIN_GAIN_OF_SERIES = 0.05
"""A trend whose slope changes is taken if it predicts better by this many nats: with few rows its
deviations follow the noise, and the densities hardly differ."""

MAX_RATIO_OF_ALL = 2.0
"""Up to this many times the rows of an exact fit, each row is predicted by all the others without
inducing points: to choose these takes longer, and rows that are no points are predicted worse."""

MAX_ROWS_OF_SCORES = 30_000
"""Densities are compared at not more rows than these."""

MIN_ROWS_OF_ONE_FOLD = 500
"""Of as many rows predictors are judged by one fold first; of fewer they are fitted in no time."""


class GaussianCandidates(Candidates[GaussianCandidate]):
    """The candidates for P under Gaussian noise."""

    def __init__(self, data: TrainingData, settings: Settings) -> None:
        super().__init__(data, settings)
        self.points = Points(self.settings, data)
        self.groups = groups_of(data.X)

    @property
    def bounds_of_noise(self) -> tuple[float, float]:
        """The smallest and the largest variance of noise that varies."""
        return self.lower_bound_of_noise, MAX_VARIANCE * float(
            np.max(np.var(self.data.responses, axis=0))
        )

    def finished(self, found: GaussianCandidate) -> Regulariser:
        """Return the regulariser of a candidate, as it will be conditioned."""
        return self._with_inducing_points(found.regulariser)

    def floor(self) -> list[GaussianCandidate]:
        """Return a constant and a linear function, below which no other candidate may fall."""
        return [
            self._fit(kernel, self.likelihood) for kernel in recipe.kernels_of_floor(self.data.D)
        ]

    def fitted(self) -> list[GaussianCandidate]:
        """Return the candidates that may be the best."""
        kernels = list(self.settings.kernels(self.data))
        found = self._of_starts(kernels) if len(kernels) > 1 else [self._of_one(kernels[0])]
        if self.data.D == 1 and self.settings.kernels is recipe_kernels:
            series = recipe.kernels_of_series(self.data.X, self.data.responses)
            of_series = self._of_starts(series) if series else found
            if best_of(of_series).nll < best_of(found).nll - MIN_GAIN_OF_SERIES:
                found = of_series
        found = self._with_enough_points(near_best(found))
        is_promising, plain = self._are_promising(best_of(found)), found
        if self._needs_few_points(best_of(found), is_promising):
            self.points.count = self.points.few
            plain = [self._fit(*each.began_at) for each in found]
            found = near_best([*found, *plain])
        every = list(found)
        if is_promising:
            around = [self._around(each) for each in plain]
            every = [*every, *around] if self.is_recipe else around
            found = near_best(every) if self.is_recipe else around
        noise = self.settings.noise
        if noise == "varying" or (noise == "auto" and np.max(self.groups) >= recipe.MIN_ROWS - 1):
            varying = [self._with_varying_noise(each) for each in found]
            others = [each for each in varying if not any(each is other for other in every)]
            every = varying if noise == "varying" else [*every, *others]
        return every

    def _with_inducing_points(self, P: Regulariser) -> Regulariser:
        """Return P with inducing points chosen for its kernel, where all rows had been these."""
        first = self.data.first(self.settings.max_rows)
        if len(P.inducing_points) < len(first.X):
            return P
        M = self.points.of_all(len(self.data.X), None)
        Z, indices = self.points.chosen(P.prior.kernel, M, self.data)
        return P._replace(inducing_points=Z, history=(P.history[-1]._replace(indices=indices),))

    def _of_one(self, kernel: Kernel) -> GaussianCandidate:
        """Return the fit of the only kernel, with more points if few miss much of it.

        It has the exact evidence of the first rows where it may, as few points may take all of a
        function for noise; then nothing is missed.
        """
        points = self.points
        if not points.may_be_exact or points.count >= points.most:
            return self._fit(kernel, self.likelihood)
        points.count = points.most
        found = self._fit(kernel, self.likelihood)
        P = found.regulariser
        if not points.miss_little(P, points.few):
            return found
        points.count = points.few
        return self._fit(P.prior.kernel, P.likelihood, again=True)

    def _from_start(self, start: GaussianCandidate) -> GaussianCandidate:
        P = start.regulariser
        if self.points.may_be_exact:  # a fit to as many takes not much longer
            self.points.take_more(P)
        return self._fit(P.prior.kernel, P.likelihood)

    def _with_enough_points(self, found: list[GaussianCandidate]) -> list[GaussianCandidate]:
        """Return the best candidate with more inducing points, or all if it misses little."""
        best = best_of(found)
        P = best.regulariser
        if not self.points.take_more(P):
            return found
        return [self._fit(P.prior.kernel, P.likelihood, again=True)]

    def _needs_few_points(self, best: GaussianCandidate, is_promising: bool) -> bool:
        """Return whether further candidates may have few inducing points again, of many rows.

        They may if few points miss little of the best fit, whatever a start has missed; and around
        predictors that err less than it, as what these leave is mostly noise.
        """
        points = self.points
        if not points.may_be_few_again:
            return False
        if points.miss_little(best.regulariser, points.few):
            return True
        return is_promising and self._have_small_errors(best, 1.0)

    def _have_small_errors(self, best: GaussianCandidate, max_ratio: float) -> bool:
        """Return whether a predictor errs less than P, or than so many times as much."""
        data = self.data.first(len(best.mean))
        of_predictors = data.responses[:, None] - self.means_at(data)
        return have_small_errors(of_predictors, data.responses - best.mean, max_ratio)

    def _of_estimators(self, estimators: Sequence[Any]) -> CrossFits:
        data = self.data
        targets = np.asarray(data.units[1].original(data.responses))
        return self._cross_fit(estimators, data, targets)

    def _are_promising(self, best: GaussianCandidate) -> bool:
        """Return whether P is to be fitted around predictors.

        Those of the recipe have errors that are not much larger than P's alone, at first in one
        fold, so that most fits are saved where they are.
        """
        if not (self.is_recipe and self.predictors.num_means):
            return self.predictors.num_means > 0
        data = self.data.first(len(best.mean))
        errors = data.responses - best.mean
        if len(data.X) >= MIN_ROWS_OF_ONE_FOLD:
            rows, values = self.predictors.of_fold(0)
            has_error = rows < len(errors)
            rows, values = rows[has_error], values[has_error]
            of_predictors = data.responses[rows, None] - values
            if not have_small_errors(of_predictors, errors[rows]):
                return False
            num_networks = len(recipe.networks(self.data))
            self.predictors = self.predictors.only(useful(of_predictors, num_networks))
        return self._have_small_errors(best, MAX_ERROR_RATIO)

    def _around(self, plain: GaussianCandidate) -> GaussianCandidate:
        """Return P around predictors, from the kernel that P has without them."""
        data = self.data
        means = self.means_at(data)
        weights = np.full(means.shape[1:], 1.0 / means.shape[1], means.dtype)
        if self.fits_weights:
            weights = _non_negative(means, data.responses)
        left = data.responses - np.sum(weights * means, axis=1)
        error = float(np.mean(np.var(left, axis=0)))
        ratio = error / float(np.mean(np.var(data.responses, axis=0)))
        kernel = scaled(plain.regulariser.prior.kernel, ratio)
        return self._fit(kernel, Gaussian(0.5 * max(error, 1e-4)), weights=weights)

    def _with_varying_noise(self, constant: GaussianCandidate) -> GaussianCandidate:
        """Return a candidate with noise in the pattern of its errors; itself if they have none."""
        pattern = self._pattern(constant.errors)
        if pattern is None:
            return constant
        P = constant.regulariser
        fit = functools.partial(
            self._fit, start=P.likelihood, weights=constant.weights if constant.is_around else None
        )
        varying = fit(P.prior.kernel, pattern=pattern)
        if self.data.D > 1:
            return varying
        # Where little noise is found, f is known better, and so are the errors, and its kinks.
        kernels = [varying.regulariser.prior.kernel]
        if self.settings.kernels is recipe_kernels and varying.nll < constant.nll:
            kernels.append(recipe.rough_kernel())
        known = None
        for kernel in kernels:
            if varying is not known:
                known, pattern = varying, self._pattern(varying.errors) or pattern
            varying = best_of([varying, fit(kernel, pattern=pattern)])
        return varying

    def _pattern(self, errors: AnyNDArray) -> Predictor | None:
        """Return the pattern of errors that predicts those left out best.

        There is none if it gains less than its exponent costs, unless noise has to vary.

        :param errors: squared, of the first rows: [N, J].
        """
        data = self.data.first(len(errors))
        inputs, unscaled = data.units[0], Scaling.none(errors)
        mean = np.maximum(np.mean(errors, axis=0), np.finfo(errors.dtype).tiny)
        errors = np.maximum(errors / mean, 1e-6)
        patterns = self._cross_fit(
            recipe.noise_models(exactly_original(inputs, data.X), errors),
            dataclasses.replace(data, units=(inputs, unscaled), seed=data.seed + 1),
            errors,
            what="the pattern of the noise",
        ).means
        gains = [gain(pattern.predict(data.X), errors) for pattern in patterns]
        best = int(np.argmax(gains))
        is_worth = gains[best] > 1.0 / len(errors) or self.settings.noise == "varying"
        return patterns[best] if is_worth else None

    def _fit(
        self,
        kernel: Kernel,
        start: Likelihood,
        *,
        starts_of: TrainingData | None = None,
        weights: AnyNDArray | None = None,
        pattern: Predictor | None = None,
        again: bool = False,
    ) -> GaussianCandidate:
        """Return a fitted candidate.

        :param weights: of the predictors, to start from, if P is around them: [C, J].
        :param pattern: that of the noise, if it varies.
        :param again: whether a candidate is fitted once more, with more inducing points.
        """
        settings, data = self.settings, self.data if starts_of is None else starts_of
        means = weights is not None
        is_brief = starts_of is not None or means or pattern is not None or again
        first, J = data.first(settings.max_rows), data.J
        M = self.points.of_fit(first)
        progress.now(
            described(kernel, around=means, varying=pattern is not None)
            + ("" if starts_of is None else ", a start")
            + f", fitted to {len(first.X)} rows"
        )
        noise = deepcopy(self.likelihood)
        variance = start.variance if noise.variance.trainable else noise.variance
        gram.require_independent_outputs(kernel)
        # With as many points as rows the bound is the evidence, which takes less time by itself.
        is_exact = len(first.X) <= M and type(settings.evidence) is DataEvidence
        fit = self.evidence_fit_of(kernel, noise, is_exact=is_exact)
        rows = self.rows(first, self.means_at(first) if means else None, pattern)
        which = {"means": means and self.fits_weights, "pattern": pattern is not None}
        with fit.lock:
            fit.start(kernel, variance, weights, 0.5 if pattern else 0.0)
            points = None if is_exact else M
            Z, last = self._maximise(fit, rows, points, which, is_brief=is_brief)
            fitted, weights = deepcopy(fit.prior.kernel), fit.weights.numpy()
            exponent = float(fit.exponent.numpy())
            assign(noise.variance, fit.variance)
        if pattern is not None:
            varying = VaryingNoise(pattern, noise.variance.numpy(), exponent, self.bounds_of_noise)
            noise = Gaussian(varying, variance_lower_bound=self.lower_bound_of_noise)
        prior = GaussianProcess(self._mean(weights) if means else Zero(J), fitted)
        scored = data.first(MAX_ROWS_OF_SCORES)
        of_rows = np.asarray(outputs.noise_variance_at(noise, scored.X, J))
        observed, groups = (scored.X, scored.responses), self.groups[: len(scored.X)]
        predicted: Any = None
        if is_exact and len(scored.X) <= MAX_RATIO_OF_ALL * len(first.X):
            predicted = leave_one_out_of_all(prior, of_rows, observed, groups)
        if predicted is None:
            if is_exact:  # of all rows, as in the end
                Z, indices = self.points.chosen(fitted, M, scored)
                last = last._replace(indices=indices)
            predicted = leave_one_out(prior, of_rows, Z, observed, groups)
        P = Regulariser(prior, prior, noise, Z, None, (last,), True)
        found = GaussianCandidate.judged(
            P,
            len(first.X),
            scored,
            predicted,
            of_rows,
            is_around=means,
            weights=weights,
            pattern=pattern,
            exponent=exponent,
            num_points=points,
            began_at=(kernel, start),
        )
        progress.found(nll=found.nll + density_constant(data), M=len(Z))
        return found

    def evidence_fit_of(self, kernel: Kernel, noise: Likelihood, *, is_exact: bool) -> EvidenceFit:
        """Return the fit of a kernel by the exact evidence, or by that of inducing points."""
        evidence = InducingEvidence() if is_exact else self.settings.evidence
        shape = self.predictors.num_means, self.data.D, self.data.J
        return evidence_fit(kernel, noise, shape, evidence)

    def _maximise(
        self,
        fit: EvidenceFit,
        rows: Rows,
        M: int | None,
        which: Mapping[str, bool],
        *,
        is_brief: bool,
    ) -> tuple[AnyNDArray, Round]:
        """Fit the hyper-parameters, and return the inducing points and how they were fitted.

        :param M: the number of points, chosen anew in each round; None for one at each row.
        :param which: what is fitted besides kernel and noise.
        :param is_brief: whether few iterations suffice.
        """
        settings, data = self.settings, self.data
        minimise = settings.briefly(data.D) if is_brief else settings.minimise
        if M is not None:
            for _ in range(settings.max_rounds):
                Z, indices = settings.select(rows.X, M, kernel=fit.prior.kernel, seed=data.seed)
                loss = fit.minimise(minimise, Z, rows, **which)
            return Z, Round(indices, loss, {})
        N = len(rows.X)
        then = None if is_brief else settings.after_half()
        if then is not None and N >= MIN_ROWS_OF_HALF:
            half = rows.some(slice(N // 2))
            fit.minimise(minimise, half.X, half, **which)
            minimise = then
        loss = fit.minimise(minimise, rows.X, rows, **which)
        return np.asarray(rows.X), Round(np.arange(N), loss, {})

    @property
    def fits_weights(self) -> bool:
        """Whether predictors have weights (Kennedy and O'Hagan 2001), as they may err much.

        P with a given kernel is around the only one as it is."""
        several = self.is_recipe or self.predictors.num_means > 1
        return several or self.settings.kernels is recipe_kernels

    def rows(self, data: TrainingData, means: AnyNDArray | None, pattern: Predictor | None) -> Rows:
        """Return what the evidence is of.

        :param means: predictions by models that have not seen the rows, if P is around them.
        :param pattern: that of the noise, if it varies.
        """
        ratio = np.ones_like(data.responses) if pattern is None else pattern.predict(data.X)
        if means is None:
            means = np.zeros([len(data.X), self.predictors.num_means, data.J])
        ratio = np.clip(ratio, MIN_RATIO, MAX_RATIO)
        return Rows(data.X, data.responses, means.astype(data.X.dtype), ratio)


def _non_negative(means: AnyNDArray, Y: AnyNDArray) -> AnyNDArray:
    """Return weights of predictors of the least squared errors, w ≥ 0 with Σ w ≤ 1: [C, J].

    :param means: predictions by models that have not seen the row, [N, C, J].
    :param Y: observations, [N, J].
    """
    found = np.stack(
        [nnls(F, y)[0] for F, y in zip(np.moveaxis(means, -1, 0), Y.T, strict=True)], 1
    )
    return found / np.maximum(np.sum(found, axis=0), 1.0)

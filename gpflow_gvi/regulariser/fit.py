"""The second step of the procedure: the regulariser P, from data.

Inducing points are chosen for a kernel, and the kernel's hyper-parameters are fitted to the
observations at them; the one depends on the other, so the two alternate until the choice repeats.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter, RegressionData
from gpflow.functions import MeanFunction, Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import multiple_assign, read_values
from scipy.stats import norm

from .._core import checks, images, labels, outputs, progress
from .._core.data import Data
from .._core.names import kernel_name
from .._core.notices import logger
from ..covariances import gram
from ..errors import NumericsWarning, short_repr
from ..gaussian_process import GaussianProcess
from ..kernels.active_columns import require_columns
from ..likelihoods import is_gaussian, usable
from . import evidence_fit
from .conditioning import conditioned
from .evidence import Evidence, InducingEvidence
from .evidence_fit import EvidenceFit
from .inducing_points import Select, greedy_variance
from .lbfgs import Minimise, lbfgs
from .site_bound import Rows
from .site_fit import SiteFit
from .sites import Sites

MAX_ROWS_OF_CHECK = 1000
"""The maximal number of rows that P is checked at."""

MIN_LOSS = 0.1
"""What P may predict worse than a constant without a warning, in nats a row: it may be chance."""


class Round(NamedTuple):
    """One round of the alternation: a choice of points, and a fit to the observations there."""

    indices: np.ndarray[Any, Any] | None
    """Which rows of the data are the inducing points, if they are rows."""
    loss: float
    """Minus the log evidence after the fit."""


class Judged(NamedTuple):
    """What predictions of rows that nothing of a fit has seen say of it."""

    factor: np.ndarray[Any, Any]
    """α, which makes variances as large as squared errors are: [J]."""
    df: np.ndarray[Any, Any] | None
    """ν of the tails that errors have, [J]; None for Gaussian tails."""
    num_rows: int
    """The number of rows that were predicted."""
    nll_before: float
    """The negative log density of a row by P as it is, in the units of the model."""
    nll_after: float
    """The same with the factor and the tails."""


class Regulariser(NamedTuple):
    """A regulariser P, before and after it is conditioned, and how it was found."""

    prior: GaussianProcess
    """GP(m_P, k) with the fitted hyper-parameters."""
    posterior: GaussianProcess
    """The prior conditioned on the observations."""
    likelihood: Likelihood
    """That of the observations, fitted with the rest."""
    inducing_points: np.ndarray[Any, Any]
    """Z: [M, D...]."""
    inducing_outputs: np.ndarray[Any, Any] | None
    """U, the observations at Z: [M, J], or labels; None where Z are not rows of the data."""
    history: tuple[Round, ...]
    """The rounds, in their order."""
    converged: bool
    """Whether the last choice of points was that of the round before, and not the maximal number of
    rounds reached or an earlier choice come back."""
    judged: Judged | None = None
    """The predictions of rows by fits without them, where these are known."""

    @property
    def log_evidence(self) -> float:
        """The log evidence that the last round reached."""
        return -self.history[-1].loss


def fit_regulariser(
    data: RegressionData,
    kernel: Kernel,
    num_inducing: int,
    *,
    mean_function: MeanFunction | None = None,
    likelihood: Likelihood | None = None,
    evidence: Evidence | None = None,
    select: Select = greedy_variance,
    minimise: Minimise = lbfgs,
    max_rounds: int = 10,
    seed: int = 0,
    verbose: int = 0,
) -> Regulariser:
    """Choose inducing points and fit the hyper-parameters of P, in turn, until the choice repeats.

    Each fit starts from the hyper-parameters that were given, and is one to the observations at the
    points that were just chosen. The arguments are left as they are; P has copies of them.

    Under a likelihood that is not Gaussian the evidence is that of a variational bound, and P is
    conditioned on the Gaussian observations that stand for the likelihood (`sites`).

    :param data: (X, Y), with Y as the likelihood takes it.
    :param kernel: k, with the hyper-parameters to start from, as the mean and the likelihood.
    :param num_inducing: M, the number of inducing points; all data if there are fewer.
    :param mean_function: m_P; zero if not given.
    :param likelihood: p(y | f); Gaussian noise with a tenth of the variance of Y if not given.
    :param evidence: what is maximised; `InducingEvidence()` if not given. `DataEvidence()` fits to
        all of the data.
    :param select: how inducing points are chosen.
    :param minimise: how the hyper-parameters are fitted.
    :param max_rounds: the maximal number of rounds.
    :param seed: the seed of the choice.
    :param verbose: 1 to print what is done now and how long it took; 0 for nothing.
    """
    gram.require_independent_outputs(kernel)
    evidence = InducingEvidence() if evidence is None else evidence
    _require_evidence(likelihood, evidence)
    X, Y = _rows(data, likelihood, kernel, mean_function)
    checks.count("num_inducing", num_inducing)
    checks.count("max_rounds", max_rounds)
    if mean_function is None:
        mean_function = Zero(labels.num_latents(likelihood, Y))
    prior = GaussianProcess(copy.deepcopy(mean_function), copy.deepcopy(kernel))
    likelihood = _noise_of(Y) if likelihood is None else usable(copy.deepcopy(likelihood))
    kind = _ByEvidence if is_gaussian(likelihood) else _BySites
    fit = kind(prior, likelihood, evidence, (X, Y))
    starts = [(part, _values(part)) for part in (prior, likelihood)]
    history: list[Round] = []
    seen: list[set[int]] = []
    converged = False
    with progress.spoken(verbose):
        for number in range(max_rounds):
            progress.now(f"P: {kernel_name(kernel)}, fitted to {len(X)} rows, round {number + 1}")
            points, indices = select(np.asarray(X), num_inducing, kernel=prior.kernel, seed=seed)
            _require_outputs(indices, evidence, select)
            chosen = set() if indices is None else set(indices.tolist())
            if chosen in seen:  # before the last round: a cycle, which would go on for ever
                converged = chosen == seen[-1]
                break
            Z = tf.convert_to_tensor(points)
            U = tf.zeros([0, Y.shape[-1]], Y.dtype) if indices is None else tf.gather(Y, indices)
            for part, values in starts:
                multiple_assign(part, values)
            loss = fit.minimise(minimise, Z, U)
            history.append(Round(indices, loss))
            progress.found(log_evidence=-loss, M=len(points))
            if indices is None:  # nothing to compare with
                break
            seen.append(chosen)
    if seen and not converged:
        logger.info("The choice of inducing points did not converge in %d rounds.", len(history))
    P, at = fit.posterior(Z, U), history[-1].indices
    if evidence.needs_inducing_outputs:
        _warn_of_useless(P, likelihood, (X, Y), at)
    U = None if at is None else np.asarray(U)
    return Regulariser(prior, P, likelihood, np.asarray(Z), U, tuple(history), converged)


def _values(part: Module) -> dict[str, np.ndarray[Any, Any]]:
    """Return copies of the values of all parameters, by their paths."""
    return {path: np.array(value) for path, value in read_values(part).items()}


def _require_outputs(indices: Any, evidence: Evidence, select: Select) -> None:
    if indices is None and evidence.needs_inducing_outputs:
        raise ValueError(
            f"select is {short_repr(select)}, whose points are not rows of the data, so there are "
            f"no observations at them for {type(evidence).__name__}. Take greedy_variance or "
            "uniform, or evidence=DataEvidence()."
        )


def _warn_of_useless(
    P: GaussianProcess, likelihood: Likelihood, data: RegressionData, points: Any
) -> None:
    """Warn where P given the inducing points predicts the other rows worse than a constant.

    The evidence of few points does not tell a function from noise, nor how fast it varies.
    """
    others = np.delete(np.arange(len(data[0])), points)[:MAX_ROWS_OF_CHECK]
    X, Y = (np.asarray(value)[others] for value in data)
    if not (is_gaussian(likelihood) and len(others) and np.all(np.var(Y, axis=0) > 0.0)):
        return
    mean, variance = np.broadcast_arrays(P.mean_function(X), outputs.variance(P.kernel, X))
    found = np.asarray(likelihood.predict_log_density(X, mean, variance, Y))
    gain = np.sum(norm.logpdf(Y, np.mean(Y, axis=0), np.std(Y, axis=0)), axis=1) - found
    if np.mean(gain) > max(MIN_LOSS, 2.0 * float(np.std(gain)) / np.sqrt(len(gain))):
        warnings.warn(
            f"P predicts the {len(others)} rows that are not inducing points worse than a constant "
            f"does, by {np.mean(gain):.3g} nats each: {len(points)} points do not tell its "
            "hyper-parameters. Take evidence=DataEvidence(), which looks at all rows, or a larger "
            "num_inducing.",
            NumericsWarning,
            stacklevel=3,
        )


class _ByEvidence:
    """The fit under Gaussian noise, where the evidence has a closed form."""

    def __init__(
        self,
        prior: GaussianProcess,
        likelihood: Likelihood,
        evidence: Evidence,
        data: RegressionData,
    ) -> None:
        self._prior, self._likelihood = prior, likelihood
        self._evidence, self._data = evidence, data
        features, J = data[0].shape[1:], data[1].shape[-1]
        # NumPy has derivatives for a mean of zero: one that is not fitted is subtracted before.
        self._of_residuals = not prior.mean_function.trainable_variables
        prior = GaussianProcess(Zero(J), prior.kernel) if self._of_residuals else prior
        self._fit = EvidenceFit(prior, likelihood, evidence, features=features, num_outputs=J)

    def minimise(self, minimise: Minimise, Z: tf.Tensor, U: tf.Tensor) -> float:
        """Fit the hyper-parameters, and return minus the log evidence."""
        X, Y = (Z, U) if self._evidence.needs_inducing_outputs else self._data
        if self._of_residuals:
            Y = Y - self._prior.mean_function(X)
        return self._fit.minimise(minimise, Z, evidence_fit.Rows.of(X, Y))

    def posterior(self, Z: tf.Tensor, U: tf.Tensor) -> GaussianProcess:
        """Return P given the observations."""
        X, Y = self._data
        noise_variance = outputs.noise_variance_at(self._likelihood, X, Y.shape[-1])
        return self._evidence.posterior(self._prior, noise_variance, (Z, U), self._data)


class _BySites:
    """The fit under any likelihood, to all rows or to the inducing points alone."""

    def __init__(
        self,
        prior: GaussianProcess,
        likelihood: Likelihood,
        evidence: Evidence,
        data: RegressionData,
    ) -> None:
        self._prior, self._evidence, self._data = prior, evidence, data
        self._num_latents = labels.num_latents(likelihood, data[1])
        self._fit = SiteFit(prior, likelihood)
        self._found: tuple[tf.Tensor, Sites]

    def minimise(self, minimise: Minimise, Z: tf.Tensor, U: tf.Tensor) -> float:
        """Fit the hyper-parameters, and return minus the bound of the log evidence."""
        X, Y = (Z, U) if self._evidence.needs_inducing_outputs else self._data
        rows = Rows(X, Y, tf.zeros([len(X), 0, self._num_latents], X.dtype), Z)
        loss, sites = self._fit.fit(minimise, rows, means=False)
        self._found = X, sites
        return loss

    def posterior(self, Z: tf.Tensor, U: tf.Tensor) -> GaussianProcess:
        """Return P given the observations."""
        X, (Y, variance) = self._found
        return conditioned(self._prior, Z, [(X, Y, variance)])


def _rows(
    data: RegressionData, likelihood: Likelihood | None, kernel: Kernel, mean: MeanFunction | None
) -> RegressionData:
    """Return the data as the likelihood takes them, with images as the parts of P do."""
    X, Y = Data.of(data, likelihood)
    if X.ndim == 2:
        require_columns([kernel], X.shape[1])
    if labels.are_labels(likelihood):
        labels.require_two_classes(np.unique(np.asarray(Y).astype(int)))
    X = images.data_rows(X, kernel, *([] if mean is None else [mean]))
    if mean is not None and labels.num_latents(likelihood, Y) == Y.shape[-1]:  # columns are outputs
        outputs.require_columns("Y", Y, mean, X)
    return X, Y


def _require_evidence(likelihood: Likelihood | None, evidence: Evidence) -> None:
    """Raise if it is no evidence, or is of inducing points and the noise is a function of x."""
    if not isinstance(evidence, Evidence):
        raise TypeError(
            f"evidence is {short_repr(evidence)}; it must be InducingEvidence() or DataEvidence()."
        )
    if not isinstance(likelihood, Gaussian):
        return
    noise = likelihood.scale if likelihood.variance is None else likelihood.variance
    if evidence.needs_inducing_outputs and not isinstance(noise, Parameter):
        raise TypeError(
            f"the noise of likelihood is a function of x, {type(noise).__name__}, but with "
            f"{type(evidence).__name__} P is conditioned with one noise variance. Take "
            "evidence=DataEvidence(), or gpflow.likelihoods.Gaussian(variance)."
        )


def _noise_of(Y: tf.Tensor) -> Gaussian:
    variance = float(tf.reduce_mean(tf.math.reduce_variance(Y, axis=0)))
    return Gaussian(0.1 * variance if variance > 0.0 else 0.1)

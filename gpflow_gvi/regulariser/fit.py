"""The second step of the procedure: the regulariser P, from data.

Inducing points are chosen for a kernel, and the kernel's hyper-parameters are fitted to the
observations at them; the one depends on the other, so the two alternate until the choice repeats.
"""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import Module, Parameter, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.functions import MeanFunction, Zero
from gpflow.kernels import Kernel
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import multiple_assign, read_values

from .._core import checks, images, labels, outputs, progress
from .._core.data import Data
from .._core.errors import shown
from .._core.names import kernel_name
from .._core.notices import logger
from ..covariances import gram
from ..gaussian_process import GaussianProcess
from .evidence import Evidence, InducingEvidence
from .inducing_points import Select, greedy_variance
from .lbfgs import Minimise, lbfgs


class Round(NamedTuple):
    """One round of the alternation: a choice of points, and a fit to the observations there."""

    indices: np.ndarray[Any, Any] | None
    """Which rows of the data are the inducing points, if they are rows."""
    loss: float
    """Minus the log evidence after the fit."""
    hyper_parameters: dict[str, np.ndarray[Any, Any]]
    """The values of kernel, mean function and likelihood after the fit, by their paths."""


class Regulariser(NamedTuple):
    """A regulariser P, before and after it is conditioned, and how it was found."""

    prior: GaussianProcess
    """GP(m_P, k) with the fitted hyper-parameters."""
    posterior: GaussianProcess
    """The prior conditioned on the observations."""
    likelihood: Likelihood
    """That of a model: the noise, fitted with the rest; for labels, the one that was given."""
    noise: Gaussian
    """The noise of the observations or responses that P is conditioned on."""
    inducing_points: np.ndarray[Any, Any]
    """Z: [M, D...]."""
    inducing_outputs: np.ndarray[Any, Any] | None
    """U, the observations or responses at Z: [M, J]; None where Z are not rows of the data."""
    history: tuple[Round, ...]
    """The rounds, in their order."""
    converged: bool
    """Whether the last choice of points was that of the round before, and not the maximal number of
    rounds reached or an earlier choice come back."""

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

    Labels of classes are fitted by regression on responses, which P is conditioned on as well: by
    their one-hot code, or by -1 and 1 under `Bernoulli`. A class without examples has the response
    zero everywhere.

    :param data: (X, Y), with one column of Y for each output, or with labels.
    :param kernel: k, with the hyper-parameters to start from.
    :param num_inducing: M, the number of inducing points; all data if there are fewer.
    :param mean_function: m_P; zero if not given.
    :param likelihood: the noise to start from, a tenth of the variance of Y if not given; or a
        `MultiClass`, `Softmax` or `Bernoulli`, where Y are labels.
    :param evidence: what is maximised; `InducingEvidence()` if not given. `DataEvidence()` fits to
        all of the data.
    :param select: how inducing points are chosen.
    :param minimise: how the hyper-parameters are fitted.
    :param max_rounds: the maximal number of rounds.
    :param seed: the seed of the choice.
    :param verbose: 1 to print what is done now and how long it took; 0 for nothing.
    """
    of_classes = labels.num_classes(likelihood) is not None
    if not (likelihood is None or of_classes or isinstance(likelihood, Gaussian)):
        raise TypeError(
            f"likelihood is {shown(likelihood)}; it must be a Gaussian, the noise of "
            "real-valued Y, or "
            "a MultiClass, Softmax or Bernoulli of labels."
        )
    gram.require_independent_outputs(kernel)
    evidence = InducingEvidence() if evidence is None else evidence
    if isinstance(likelihood, Gaussian):
        _require_one_noise_variance(likelihood, evidence)
    X, Y = Data.of(data, likelihood)
    if of_classes:
        _require_two_classes(Y)
    Y = labels.responses(likelihood, Y)
    X = images.data_rows(X, kernel, *([] if mean_function is None else [mean_function]))
    checks.count("num_inducing", num_inducing)
    checks.count("max_rounds", max_rounds)
    parts = _Parts(
        copy.deepcopy(kernel),
        Zero(Y.shape[-1]) if mean_function is None else copy.deepcopy(mean_function),
        copy.deepcopy(likelihood) if isinstance(likelihood, Gaussian) else _noise_of(Y),
        int(Y.shape[-1]),
    )
    prior = GaussianProcess(parts.mean_function, parts.kernel)

    # One graph for all rounds: the points of a round are its arguments.
    @tf.function(reduce_retracing=True, autograph=False)
    def loss(Z: tf.Tensor, U: tf.Tensor) -> tf.Tensor:
        noise_variance = parts.noise_variance(Z if evidence.needs_inducing_outputs else X)
        value = -evidence.log_density(prior, noise_variance, (Z, U), (X, Y))
        return value - parts.log_prior_density()

    start = parts.values()
    history: list[Round] = []
    seen: list[set[int]] = []
    converged = False
    with progress.spoken(verbose):
        for number in range(max_rounds):
            progress.now(f"P: {kernel_name(kernel)}, fitted to {len(X)} rows, round {number + 1}")
            points, indices = select(np.asarray(X), num_inducing, kernel=parts.kernel, seed=seed)
            if indices is None and evidence.needs_inducing_outputs:
                raise ValueError(
                    f"select is {shown(select)}, whose points are not rows of the data, so there "
                    "are no "
                    f"observations at them for {type(evidence).__name__}. Take greedy_variance or "
                    "uniform, or evidence=DataEvidence()."
                )
            chosen = set() if indices is None else set(indices.tolist())
            if chosen in seen:  # before the last round: a cycle, which would go on for ever
                converged = chosen == seen[-1]
                break
            Z = tf.convert_to_tensor(points)
            U = tf.zeros([0, Y.shape[-1]], Y.dtype) if indices is None else tf.gather(Y, indices)
            multiple_assign(parts, start)
            minimise(functools.partial(loss, Z, U), parts.trainable_variables)
            history.append(Round(indices, float(loss(Z, U)), parts.values()))
            progress.found(log_evidence=-history[-1].loss, M=len(points))
            if indices is None:  # nothing to compare with
                break
            seen.append(chosen)
    if seen and not converged:
        logger.info("The choice of inducing points did not converge in %d rounds.", len(history))
    return Regulariser(
        prior,
        evidence.posterior(
            prior,
            parts.noise_variance(Z if evidence.needs_inducing_outputs else X),
            (Z, U),
            (X, Y),
        ),
        copy.deepcopy(likelihood) if likelihood and of_classes else parts.likelihood,
        parts.likelihood,
        np.asarray(Z),
        None if history[-1].indices is None else np.asarray(U),
        tuple(history),
        converged,
    )


class _Parts(Module):
    """The parts with hyper-parameters: the kernel, the mean function and the noise."""

    def __init__(
        self, kernel: Kernel, mean_function: MeanFunction, likelihood: Gaussian, J: int
    ) -> None:
        super().__init__()
        self.J = J
        self.kernel = kernel
        self.mean_function = mean_function
        self.likelihood = likelihood

    def log_prior_density(self) -> tf.Tensor:
        """Return the log density of the hyper-parameters under their own priors: []."""
        logs = [parameter.log_prior_density() for parameter in self.trainable_parameters]
        return tf.add_n(logs) if logs else tf.zeros([], default_float())

    def noise_variance(self, X: tf.Tensor) -> TensorType:
        """Return σ², one for all outputs or [J], or that of each row, [N, J]."""
        return outputs.noise_variance_at(self.likelihood, X, self.J)

    def values(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return copies of the values of all hyper-parameters, by their paths."""
        return {path: np.array(value) for path, value in read_values(self).items()}


def _require_two_classes(Y: tf.Tensor) -> None:
    present = np.unique(np.asarray(Y))
    if len(present) < 2:
        raise ValueError(
            f"Y has examples of class {present[0]:.0f} alone: there is nothing to tell apart. Give "
            "examples of at least two classes."
        )


def _require_one_noise_variance(likelihood: Gaussian, evidence: Evidence) -> None:
    """Raise where P is conditioned at inducing points, and the noise is a function of x."""
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

"""Noise whose variance depends on the input, in the pattern of errors of rows left out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, TensorType
from gpflow.config import default_float
from gpflow.functions import Function, MeanFunction
from gpflow.likelihoods import Gaussian
from gpflow.utilities import positive
from scipy.optimize import minimize_scalar

from .._core import outputs
from ..kernels.numpy_parameters import value_of
from ..mean_functions.predictor import Predictor
from ..regulariser.evidence_fit import BOUNDS_OF_EXPONENT
from .default_predictors import noise_models
from .log_process import LogProcess, fitted_hyperparameters
from .rows.scaling import Scaling, exactly_original

if TYPE_CHECKING:
    from .candidates import Candidate, Fits, Fitted
    from .start import TrainingData

MIN_RATIO, MAX_RATIO = 0.01, 100.0
"""Smaller and larger values of the pattern are taken to be these."""


class VaryingNoise(Function):
    """σ²(x) = v h(x)^κ, within bounds: a pattern h of the noise, that v scales and κ flattens.

    With κ = 0 the noise is constant, with κ = 1 it follows the pattern. A GPflow likelihood takes
    it for its variance: `gpflow.likelihoods.Gaussian(VaryingNoise(h))`.

    :param pattern: h, a positive function of [N, D] to [N, J], such as a `CrossFitted` of squared
        residuals.
    :param variance: the start of v.
    :param exponent: the start of κ, which has a normal prior around one half.
    :param bounds: the smallest and the largest σ²(x).
    """

    def __init__(
        self,
        pattern: MeanFunction,
        variance: Any,
        exponent: Any = 0.5,
        bounds: tuple[float, float] = (0.0, np.inf),
    ) -> None:
        super().__init__()
        self.lower, self.upper = map(float, bounds)
        self.pattern = pattern
        self.variance = Parameter(variance, transform=positive(base="exp"))
        half: AnyNDArray = np.asarray(0.5, default_float())
        self.exponent = Parameter(exponent, prior=tfp.distributions.Normal(half, half))

    @check_shapes("X: [N, D]", "return: [N, J]")
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return σ²(X): [N, J]."""
        ratio = tf.clip_by_value(self.pattern(X), MIN_RATIO, MAX_RATIO)
        variance = self.variance * tf.pow(ratio, self.exponent)
        return tf.clip_by_value(variance, self.lower, self.upper)

    def predict(self, X: AnyNDArray) -> AnyNDArray:
        """Return σ²(X) as an array: [N, J]."""
        variance = value_of(self.variance) * self.ratio(X) ** value_of(self.exponent)
        return np.clip(variance, self.lower, self.upper)

    def ratio(self, X: AnyNDArray) -> AnyNDArray:
        """Return h at rows, within bounds: [N, J]."""
        return np.clip(self.pattern.predict(X), MIN_RATIO, MAX_RATIO)


def noise_at(candidate: Candidate, data: TrainingData) -> AnyNDArray:
    """Return the variance of Gaussian noise at rows: [N, J]."""
    noise = candidate.likelihood.variance
    if isinstance(noise, VaryingNoise):
        variance = noise.predict(data.X)
    elif isinstance(noise, Parameter):  # TensorFlow takes a hundred times as long
        variance = value_of(noise)
    else:
        variance = np.asarray(outputs.noise_variance_at(candidate.likelihood, data.X, data.J))
    return variance * data.relative_noise


def varying(fits: Fits, constant: Fitted) -> Candidate | None:
    """Return a candidate with noise in the pattern of a fit's errors; None if they have none."""
    few = len(np.unique(fits.groups)) < fits.recipe.min_rows_of_varying_noise
    if few and fits.settings.noise == "auto":
        return None
    pattern = _pattern(fits, constant)
    if pattern is None:
        return None
    noise, half = constant.candidate.likelihood.variance, 0.5
    if isinstance(noise, VaryingNoise):
        noise, half = noise.variance, value_of(noise.exponent)
    function = VaryingNoise(pattern, value_of(noise), half, fits.bounds_of_noise)
    likelihood = Gaussian(function, variance_lower_bound=fits.bounds_of_noise[0])
    return constant.candidate.replace(likelihood=likelihood)


def _pattern(fits: Fits, fitted: Fitted) -> Predictor | None:
    """Return the pattern of errors that predicts those left out best.

    There is none if it gains less than its exponent costs, unless noise has to vary. The
    noise makes up the share σ² / variance of the squared errors of rows left out.
    """
    predictions = fitted.left_out
    data = fits.data.first(predictions.Y.shape[0])
    noise = noise_at(fitted.candidate, data)
    errors = noise * predictions.squares[0]
    inputs, unscaled = data.units[0], Scaling.none(errors)
    mean = np.maximum(np.mean(errors, axis=0), np.finfo(errors.dtype).tiny)
    errors = np.maximum(errors / mean, 1e-6)
    X = exactly_original(inputs, data.X)
    # Few hyper-parameters of all rows hardly flatter predictions of one fold, and save time.
    process = LogProcess(fitted_hyperparameters(X, errors))
    patterns = fits.cross_fit(
        noise_models(X[:, fits.data.features], errors, process),
        dataclasses.replace(data, units=(inputs, unscaled), seed=data.seed + 1),
        errors,
        what="the pattern of the noise",
    ).means
    gains = [gain(pattern.predict(data.X), errors) for pattern in patterns]
    best = int(np.argmax(gains))
    has_to_vary = fits.settings.noise == "varying"
    return patterns[best] if has_to_vary or gains[best] > 1.0 / len(errors) else None


def gain(pattern: AnyNDArray, errors: AnyNDArray) -> float:
    """Return the gain in log density per observation from noise that has a pattern.

    It is the log density of errors under N(0, v h^κ) with the best v and κ, less that with κ = 0:

        ½ log mean(e) - ½ min_κ (log mean(e h^-κ) + κ mean(log h))

    It is that of rows left out if h has not seen them. The function of κ is convex. The pattern h
    and squared errors e are [N, J].
    """
    mean = np.mean(pattern, axis=0)
    log_h = np.log(np.clip(pattern, MIN_RATIO * mean, MAX_RATIO * mean))

    def loss(exponent: float) -> float:
        scale = np.mean(errors * np.exp(-exponent * log_h), axis=0)
        return 0.5 * float(np.sum(np.log(scale) + exponent * np.mean(log_h, axis=0)))

    found = minimize_scalar(loss, bounds=BOUNDS_OF_EXPONENT, method="bounded")
    return loss(0.0) - float(found.fun)

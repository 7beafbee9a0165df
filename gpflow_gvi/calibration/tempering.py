"""Tempering: the covariance of a fitted model is scaled to fit validation data."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow import Parameter
from gpflow.base import AnyNDArray, RegressionData, TensorType
from gpflow.config import default_float
from gpflow.functions import Function
from gpflow.likelihoods import Gaussian, Likelihood
from gpflow.utilities import positive
from scipy.optimize import minimize_scalar

from .._core import checks, images
from .._core.data import Data
from .._core.graphs import deepcopy
from .._core.row_blocks import by_blocks, slices
from ..covariances import Tempered
from ..errors import NumericsWarning, short_repr
from ..gaussian_process import GaussianProcess
from ..likelihoods import HeavyTailed
from ..losses import Marginals
from ..models import GVI
from ..regulariser.expectations import MAX_ROWS_AT_ONCE, log_predictive_densities

Model = TypeVar("Model", bound=GVI)

MIN_VALIDATION_POINTS = 10
"""With fewer points the factor has a large error, and a warning is raised."""

MAX_FACTOR = 1e4
"""Factors of a closed form lie between this number and its inverse."""

MAX_SHARED_FACTOR = 100.0
"""Without a closed form the factor is searched between this number and its inverse."""

PRIOR_DEVIATION = 0.5
"""The standard deviation of log α under its prior, where there is no closed form."""


def temper(model: Model, validation_data: RegressionData) -> Model:
    """Return the model with the covariance of Q scaled to fit validation data.

    Q = GP(m_Q, r) becomes GP(m_Q, α·r), one α > 0 per output, `variational.kernel.factor` of the
    result. The factors maximise the predictive density of the validation data (Wu 2023,
    "Generalised variational inference for Gaussian processes"). Under a Gaussian likelihood the
    noise is scaled as well, so that y ~ N(m_Q, α (r + σ²)), and they have a closed form:

        α_j = average over n of (y_nj - m_Qj(x_n))² / (r_j(x_n, x_n) + σ_j²)

    Under any other likelihood the outputs share one factor, the maximum of

        Σ_n log p(y_n | α) - (log α)² / 2s²

    for log α ~ N(0, s²), s = 1/2. An observation says little of α there, a label that is predicted
    with confidence next to nothing, so that few observations leave it near 1. It lies between 0.01
    and 100, and the density of the validation data is no worse than for α = 1.

    The given model is not changed. The result is for prediction: the factors are not trainable,
    and its divergence may not be defined for the tempered Q (`InducingKL` is not).

    :param model: a fitted `GVI`, `GWI` or `PGVI`.
    :param validation_data: (X, Y) that the model was not fitted to.
    """
    _require_model(model)
    return tempered_by(model, factors(model.likelihood, _marginals(model, validation_data)))


def tempered_by(model: Model, factor: TensorType) -> Model:
    """Return the model tempered by known factors, such as those of another fit.

    :param model: a fitted `GVI`, `GWI` or `PGVI`; it is not changed.
    :param factor: α, [J].
    """
    _require_model(model)
    value = tf.convert_to_tensor(factor, dtype=default_float())
    if value.shape.rank != 1:
        raise ValueError(f"factor has shape {tuple(value.shape)}; give one for each output, [J].")
    checks.positive("factor", value)
    factor = Parameter(value, transform=positive(lower=0.0), trainable=False)
    tempered = deepcopy(model)
    Q = tempered.variational
    tempered.variational = GaussianProcess(Q.mean_function, Tempered(Q.kernel, factor))
    tempered.likelihood = _tempered_noise(tempered.likelihood, factor)
    return tempered


def _require_model(model: Any) -> None:
    if not isinstance(model, GVI):
        raise TypeError(
            f"model is {short_repr(model)}; it must be a GVI, GWI or PGVI. Intervals of other "
            "models are calibrated by conformal(model, calibration_data)."
        )


def _marginals(model: GVI, validation_data: RegressionData) -> Marginals:
    """Validate the data, and return the marginals of Q there."""
    X, Y = Data.of(validation_data, model.likelihood, name="validation_data")
    N = len(Y)
    if N < 2:
        raise ValueError(
            "validation_data has 1 row, but a factor cannot be estimated from a single point. "
            f"Hold out at least 2, better {MIN_VALIDATION_POINTS} points or more."
        )
    if N < MIN_VALIDATION_POINTS:
        warnings.warn(
            f"validation_data has {N} rows, so the relative standard error of the factor is about "
            f"√(2/{N}) = {math.sqrt(2.0 / N):.2f}; hold out {MIN_VALIDATION_POINTS} points or "
            "more.",
            NumericsWarning,
            stacklevel=3,  # the caller of temper
        )
    X = images.as_rows(X, model.variational, model.regulariser)
    images.require_rows(X, model.variational)
    mean, variance = by_blocks(model.predict_f, X)
    model.require_columns(mean.shape[-1], Y)
    require_finite("validation_data", mean, variance)
    return Marginals(X, tf.constant(mean), tf.constant(variance), Y)


@functools.singledispatch
def factors(likelihood: Likelihood, at: Marginals) -> AnyNDArray:
    """Return the factor of the greatest posterior density, the same for all outputs: [J]."""
    # The derivative of a standard deviation of exactly zero would be infinite.
    variance = np.maximum(np.asarray(at.f_variance), 1e-30)
    N = len(at.Y)

    def loss(log_factors: AnyNDArray) -> AnyNDArray:
        """Return minus the log posterior density of each value, few rows for all values at once."""
        G = len(log_factors)
        scales = np.exp(log_factors).astype(variance.dtype)[:, None, None]
        v = (scales * variance).reshape(G * N, -1)
        X, mean, Y = (tf.tile(rows, [G, 1]) for rows in (at.X, at.f_mean, at.Y))
        densities = log_predictive_densities(likelihood, X, mean, v, Y).astype(float)
        prior = 0.5 * np.square(log_factors / PRIOR_DEVIATION)
        return prior - np.sum(densities.reshape(G, N), axis=1)

    # Where confident predictions are wrong, the density is flat around α = 1: try a grid first.
    end = math.log(MAX_SHARED_FACTOR)
    grid = np.linspace(-end, end, 13)
    of = slices(len(grid), max(1, MAX_ROWS_AT_ONCE // N))
    at_grid = np.concatenate([loss(grid[some]) for some in of])
    untempered = float(at_grid[len(grid) // 2])
    if not math.isfinite(untempered):
        raise ValueError(
            f"the mean log predictive density of validation_data is {-untempered / N}; "
            f"{type(likelihood).__name__} gives no density to some rows of Y. Check their values."
        )
    best = int(np.argmin(at_grid))
    bracket = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(
        lambda value: loss(np.array([value]))[0], bounds=bracket, options={"xatol": 1e-4}
    )
    log_factor = found.x if found.fun < untempered else 0.0
    return np.full(at.f_mean.shape[-1], math.exp(log_factor), variance.dtype)


@factors.register
def _(likelihood: Gaussian, at: Marginals) -> AnyNDArray:
    variance = at.f_variance + likelihood.conditional_variance(at.X, at.f_mean)  # [N, J]
    found = factor_of_errors(at.Y, at.f_mean, variance).numpy()
    if not np.all(found > 0.0):
        raise ValueError(
            f"validation_data is predicted without any error in outputs "
            f"{np.flatnonzero(found <= 0.0).tolist()} of {len(found)}, so its factor would be "
            "0; it must be positive. Use held-out points, whose Y the model has not seen."
        )
    return found


def factor_of_errors(Y: TensorType, mean: tf.Tensor, variance: tf.Tensor) -> tf.Tensor:
    """Return the average of (y - m)² / v, the factor of v under Gaussian noise: [J]."""
    return tf.reduce_mean(tf.square(Y - mean) / variance, axis=0)


def _tempered_noise(likelihood: Likelihood, factor: Parameter) -> Likelihood:
    """Return the likelihood with α times the variance of Gaussian noise of each output.

    Constant noise stays a parameter, so that it can be read and trained as before. Its lower
    bound is removed: it was for σ², and α σ² may lie below it.
    """
    if isinstance(likelihood, HeavyTailed):
        return HeavyTailed(_TemperedNoise(likelihood, factor), likelihood.df)
    if not isinstance(likelihood, Gaussian):
        return likelihood
    noise = likelihood.scale if likelihood.variance is None else likelihood.variance
    if not isinstance(noise, Parameter):
        return Gaussian(_TemperedNoise(likelihood, factor), variance_lower_bound=0.0)
    anywhere = tf.zeros([1, *factor.shape], dtype=factor.dtype)
    variance = factor * likelihood.conditional_variance(anywhere, anywhere)[0]  # [J]
    if len(variance) == 1:
        variance = variance[0]
    variance = Parameter(variance, transform=positive(lower=0.0), trainable=noise.trainable)
    return Gaussian(variance, variance_lower_bound=0.0)


class _TemperedNoise(Function):
    """α σ²(x), the noise variance of each output of a heteroskedastic likelihood."""

    def __init__(self, likelihood: Gaussian, factor: Parameter) -> None:
        super().__init__()
        self.likelihood = likelihood
        self.factor = factor

    @check_shapes("X: [batch..., D]", "return: [batch..., J]")
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return α_j σ_j²(x): [N, J]."""
        of_outputs = tf.concat([tf.shape(X)[:-1], tf.shape(self.factor)], axis=0)
        zeros = tf.zeros(of_outputs, dtype=self.factor.dtype)
        return self.factor * self.likelihood.conditional_variance(X, zeros)


def require_finite(name: str, mean: AnyNDArray, variance: AnyNDArray) -> None:
    """Raise unless all predictions for the data of this name are finite."""
    finite = np.all(np.isfinite(mean) & np.isfinite(variance), axis=-1)
    if not np.all(finite):
        raise ValueError(
            f"the model's predictions are NaN or infinite at {np.sum(~finite)} of the "
            f"{len(finite)} rows of {name} (the first is row {np.argmin(finite)}). Check the "
            "mean function of the model and the scale of X."
        )

"""Metrics of real-valued predictions, and the evaluation of a model by them.

They are functions of arrays `[N, J]`, computed in float64 and averaged over points and outputs;
only `nll` is the sum over the outputs, as GPflow's `predict_log_density` is. `METRICS` lists them
with their orientation, and `evaluate` computes all of them for a model.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray, RegressionData, TensorType
from scipy import stats

from .._core import checks, feature_names
from .._core.data import Data
from .._core.row_blocks import by_blocks
from ..calibration.conformal_prediction import require_real_outputs
from ..likelihoods import are_labels, is_gaussian
from .classes import CLASS_METRICS, Metric, evaluate_probabilities, labels_and_probabilities

LEVELS = tuple(i / 20 for i in range(1, 20))
"""The nominal coverages of `calibration_error`: 0.05, 0.10, ..., 0.95."""


def nll(Y: TensorType, mean: TensorType, variance: TensorType) -> float:
    """Return the negative log density of Gaussians, summed over outputs, averaged over points."""
    Y, mean, sd = _gaussians(Y, mean, variance)
    return float(-np.mean(np.sum(stats.norm.logpdf(Y, mean, sd), axis=-1)))


def rmse(Y: TensorType, mean: TensorType) -> float:
    """Return the root of the mean squared error."""
    Y, mean = _arrays(Y=Y, mean=mean)
    return math.sqrt(np.mean(np.square(Y - mean)))


def mae(Y: TensorType, mean: TensorType) -> float:
    """Return the mean absolute error."""
    Y, mean = _arrays(Y=Y, mean=mean)
    return float(np.mean(np.abs(Y - mean)))


def crps(Y: TensorType, mean: TensorType, variance: TensorType) -> float:
    """Return the mean continuous ranked probability score ∫ (F(z) - 1{y ≤ z})² dz of Gaussians.

    It is σ (u (2Φ(u) - 1) + 2φ(u) - 1/√π) with u = (y - μ)/σ (Gneiting and Raftery 2007,
    "Strictly proper scoring rules, prediction, and estimation", equation 21, with the sign turned).
    """
    Y, mean, sd = _gaussians(Y, mean, variance)
    u = (Y - mean) / sd
    scores = (
        u * (2.0 * stats.norm.cdf(u) - 1.0) + 2.0 * stats.norm.pdf(u) - 1.0 / math.sqrt(math.pi)
    )
    return float(np.mean(sd * scores))


def coverage(Y: TensorType, lower: TensorType, upper: TensorType) -> float:
    """Return the fraction of observations that lie in their intervals, ends included."""
    Y, lower, upper = _arrays(Y=Y, lower=lower, upper=upper)
    return float(np.mean((lower <= Y) & (upper >= Y)))


def width(lower: TensorType, upper: TensorType) -> float:
    """Return the mean width of the intervals."""
    lower, upper = _arrays(lower=lower, upper=upper)
    if np.any(lower > upper):
        raise ValueError(
            f"lower is above upper in {np.sum(lower > upper)} of {lower.size} intervals; pass the "
            "lower ends first."
        )
    return float(np.mean(upper - lower))


def calibration_error(Y: TensorType, mean: TensorType, variance: TensorType) -> float:
    """Return the mean difference of the coverage of central intervals and their level.

    The observed coverage of Gaussian intervals is compared to each of `LEVELS`, as Kuleshov,
    Fenner and Ermon (2018), "Accurate uncertainties for deep learning using calibrated regression",
    do for quantiles; here by absolute differences.
    """
    Y, mean, sd = _gaussians(Y, mean, variance)
    return _calibration_error(2.0 * stats.norm.cdf(np.abs(Y - mean) / sd) - 1.0)


def _calibration_error(level: AnyNDArray) -> float:
    nominal = np.asarray(LEVELS)
    # A point is in all central intervals whose level is at least its own.
    observed = np.mean(level.ravel() <= nominal[:, None], axis=1)
    return float(np.mean(np.abs(observed - nominal)))


METRICS = {
    name: Metric(name, "target" if name == "coverage" else "lower")
    for name in ("nll", "rmse", "mae", "crps", "coverage", "width", "calibration_error")
}
"""All metrics of `evaluate`, by name."""


def evaluate(model: Any, data: RegressionData, *, coverage_level: float = 0.95) -> dict[str, float]:
    """Return all `METRICS` of a model's predictions of the data, by name.

    With a likelihood of classes these are the `CLASS_METRICS` (`evaluate_classes` has more).
    Otherwise `nll` is that of the model's likelihood, and the others are computed from the mean and
    variance of `predict_y`; where they need a distribution it is that of `predict_law`, if the
    model has one (the result of `learn`), and else the Gaussian with these moments.

    :param model: a model of GPflow or of this package, or another with `predict_y` and
        `predict_log_density`.
    :param data: held-out (X, Y).
    :param coverage_level: the nominal coverage of the central intervals.
    """
    checks.coverage(coverage_level, "coverage_level")
    likelihood = getattr(model, "likelihood", None)
    if are_labels(likelihood):
        found = evaluate_probabilities(*labels_and_probabilities(model, data))
        return {name: found[name] for name in CLASS_METRICS}
    require_real_outputs(model)
    X, Y = Data.of(data)
    feature_names.require_of(model, next(iter(data)))
    mean, variance = by_blocks(model.predict_y, X)
    (log_density,) = by_blocks(lambda *block: (model.predict_log_density(block),), X, Y)
    Y, mean, sd = _gaussians(Y, mean, variance)
    if is_gaussian(likelihood) and hasattr(model, "predict_law"):
        law = model.predict_law(X)
        lower, upper = (law.quantile(0.5 + half * coverage_level) for half in (-0.5, 0.5))
        score = float(np.mean(law.crps(Y)))
        error = _calibration_error(np.abs(2.0 * law.cdf(Y) - 1.0))
    else:
        half_width = sd * stats.norm.ppf(0.5 + 0.5 * coverage_level)
        lower, upper = mean - half_width, mean + half_width
        score, error = crps(Y, mean, variance), calibration_error(Y, mean, variance)
    return {
        "nll": -float(np.mean(np.asarray(log_density, dtype=float))),
        "rmse": rmse(Y, mean),
        "mae": mae(Y, mean),
        "crps": score,
        "coverage": coverage(Y, lower, upper),
        "width": width(lower, upper),
        "calibration_error": error,
    }


def _gaussians(
    Y: TensorType, mean: TensorType, variance: TensorType
) -> tuple[AnyNDArray, AnyNDArray, AnyNDArray]:
    """Return observations, means and standard deviations of one shape."""
    Y, mean, variance = _arrays(Y=Y, mean=mean, variance=variance)
    bad = (variance <= 0.0) | np.isinf(variance)
    if np.any(bad):
        raise ValueError(
            f"variance is zero, negative or infinite in {np.sum(bad)} of {bad.size} entries (the "
            f"first is {variance[bad][0]}); a Gaussian needs a positive, finite one."
        )
    return Y, mean, np.sqrt(variance)


def _arrays(**values: TensorType) -> tuple[AnyNDArray, ...]:
    """Return the values as float64 arrays, which must be of the same shape and without NaN.

    NumPy would silently make [N, N] of [N, 1] and [N].
    """
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in values.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"{listed}; they must be the same, [N, J].")
    for name, array in arrays.items():
        if array.ndim != 2 or array.size == 0:
            raise ValueError(
                f"{name} has shape {array.shape}; it must be [N, J] with at least one entry. "
                f"{name}[:, None] makes a column of a vector."
            )
        if np.any(np.isnan(array)):
            raise ValueError(
                f"{name} is NaN in {np.sum(np.isnan(array))} of {array.size} entries; no metric "
                "is defined there."
            )
    return tuple(arrays.values())

"""Metrics of predictions, each a number with its orientation."""

from .base import Metric
from .classes import (
    CLASS_METRICS,
    accuracy,
    auroc,
    brier,
    cross_entropy,
    ece,
    reliability,
    selective,
)
from .regression import (
    LEVELS,
    METRICS,
    calibration_error,
    coverage,
    crps,
    evaluate,
    mae,
    nll,
    rmse,
    width,
)

__all__ = [
    "CLASS_METRICS",
    "LEVELS",
    "METRICS",
    "Metric",
    "accuracy",
    "auroc",
    "brier",
    "calibration_error",
    "coverage",
    "cross_entropy",
    "crps",
    "ece",
    "evaluate",
    "mae",
    "nll",
    "reliability",
    "rmse",
    "selective",
    "width",
]

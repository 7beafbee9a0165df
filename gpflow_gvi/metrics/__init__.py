"""Metrics of predictions, each a number with its orientation."""

from .base import Metric
from .classes import (
    CLASS_METRICS,
    accuracy,
    auroc,
    brier,
    cross_entropy,
    ece,
    ece_interval,
    fpr_at_tpr,
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
    "ece_interval",
    "evaluate",
    "fpr_at_tpr",
    "mae",
    "nll",
    "reliability",
    "rmse",
    "selective",
    "width",
]

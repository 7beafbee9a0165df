"""Calibration on held-out data: tempered variances, and conformal intervals and sets."""

from .conformal_prediction import Conformal, ConformalSets, conformal
from .conformal_quantiles import ConformalQuantiles
from .tempering import temper

__all__ = ["Conformal", "ConformalQuantiles", "ConformalSets", "conformal", "temper"]

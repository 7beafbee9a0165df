"""Calibration on held-out data: tempered variances, and conformal intervals and sets."""

from .conformal_prediction import Conformal, ConformalQuantiles, ConformalSets, conformal
from .tempering import temper

__all__ = ["Conformal", "ConformalQuantiles", "ConformalSets", "conformal", "temper"]

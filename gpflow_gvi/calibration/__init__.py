"""Calibration on held-out data: tempered variances, and conformal intervals and sets."""

from .conformal_prediction import Conformal, conformal
from .conformal_quantiles import ConformalQuantiles
from .conformal_sets import ConformalSets
from .tempering import temper

__all__ = ["Conformal", "ConformalQuantiles", "ConformalSets", "conformal", "temper"]

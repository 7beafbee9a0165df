"""The regulariser P, from data: inducing points, evidence, and the hyper-parameters that fit."""

from .fit import Regulariser, fit_regulariser

__all__ = ["Regulariser", "fit_regulariser"]

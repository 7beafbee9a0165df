"""Heavy tails: how far predictions are off at times, more than a Gaussian with their variance.

The variance of a tempered model is right on average, but not in each row: errors where a function
changes at different speeds, or a few values are wrong, have heavier tails than a Gaussian. With
Student's t of the same variance a row that is many deviations off costs a logarithm of them instead
of their square, and where errors are Gaussian, nothing changes.
"""

from __future__ import annotations

import math

import numpy as np
from gpflow.base import AnyNDArray, TensorType
from gpflow.likelihoods import Likelihood
from scipy import stats
from scipy.optimize import minimize_scalar

from .._core.graphs import deepcopy
from ..likelihoods import HeavyTailed
from .tempering import Model

MIN_DF = 2.5
"""With two degrees of freedom the variance is infinite."""

MAX_DF = 100.0
"""With more degrees of freedom the law is as good as Gaussian."""


def with_tails(model: Model, errors: AnyNDArray) -> Model:
    """Return the model with predictions of the tails that errors have; itself if they have none.

    :param model: a tempered model with Gaussian noise; it is not changed.
    :param errors: (y - m)² / v, squared errors of rows that the model has not seen in units of the
        variance, [N, J].
    """
    df = degrees_of_freedom(errors)
    return model if df is None else _replaced(model, df)


def with_tails_of(model: Model, likelihood: Likelihood) -> Model:
    """Return the model with predictions of the tails that those of another fit have."""
    return _replaced(model, likelihood.df) if isinstance(likelihood, HeavyTailed) else model


def _replaced(model: Model, df: TensorType) -> Model:
    model = deepcopy(model)
    model.likelihood = HeavyTailed(model.likelihood.variance, df)
    return model


def degrees_of_freedom(errors: AnyNDArray) -> AnyNDArray | None:
    """Return ν of each output with the greatest density: [J]. None if all errors are Gaussian.

    :param errors: squared, in units of the variance, [N, J].
    """
    fits = [_fit(column) for column in np.asarray(errors, dtype=float).T]
    if all(df is None for df in fits):
        return None
    return np.array([df or MAX_DF for df in fits], dtype=errors.dtype)


def _fit(squares: AnyNDArray) -> float | None:
    """Return ν; None if the log density of all N rows gains less than ½ log N by it.

    That is what a parameter costs (Schwarz 1978, "Estimating the dimension of a model"): a few rows
    often seem to have heavy tails.
    """
    N, mean = len(squares), float(np.mean(squares))
    if not (math.isfinite(mean) and mean > 0.0):
        return None
    z = np.sqrt(squares / mean)
    gaussian = float(np.mean(stats.norm.logpdf(z)))

    def loss(log_excess: float) -> float:
        df = 2.0 + math.exp(log_excess)
        return -float(np.mean(stats.t.logpdf(z, df, scale=math.sqrt((df - 2.0) / df))))

    bounds = math.log(MIN_DF - 2.0), math.log(MAX_DF - 2.0)
    found = minimize_scalar(loss, bounds=bounds, method="bounded")
    gained = -float(found.fun) - gaussian
    return 2.0 + math.exp(found.x) if N * gained > 0.5 * math.log(N) else None

"""Heavy tails: how far predictions are off at times, more than a Gaussian with their variance.

The variance of a tempered model is right on average, but not in each row: errors where a function
changes at different speeds, or a few values are wrong, have heavier tails than a Gaussian. With
Student's t of the same variance a row that is many deviations off costs a logarithm of them instead
of their square, and where errors are Gaussian, next to nothing changes.
"""

from __future__ import annotations

import math

import numpy as np
from gpflow.base import AnyNDArray, TensorType
from scipy import stats
from scipy.optimize import minimize

from .. import likelihoods
from .._core.graphs import deepcopy
from .tempering import Model

MIN_DF = 2.5
"""With two degrees of freedom the variance is infinite."""

MAX_DF = 100.0
"""With more degrees of freedom the law is practically Gaussian."""


def with_df(model: Model, df: TensorType | None) -> Model:
    """Return the model with predictions of Student's t.

    :param model: a tempered model with Gaussian noise; it is not changed.
    :param df: ν, [J]; None for the model as it is.
    """
    if df is None:
        return model
    model = deepcopy(model)
    model.likelihood = likelihoods.HeavyTailed(model.likelihood.variance, df)
    return model


def scale_and_degrees_of_freedom(
    squares: AnyNDArray, bounds_of_factor: tuple[float, float], freedom: float = math.inf
) -> tuple[float, float]:
    """Return α and ν of the greatest posterior density of errors e ~ √α t_ν of variance α.

    The prior of ν is Gamma(2, 0.1) (Juárez and Steel 2010, "Model-based clustering of non-Gaussian
    panel data based on skew-t distributions"). N rows without an outlier do not show that N more
    would have none: for Gaussian errors ν is 10 to 60, which costs 0.75/ν² in log density. That of
    α is log α ~ N(log c, s²) with s = ½: few errors hardly tell how large they are. Where an error
    counts for less, as of several partitions of the same rows, its log density does. If the
    variance itself is an estimate of ν₀ degrees of freedom, ν is no larger, and c is the
    `expected_factor`.

    :param squares: in units of the variance; of R predictions of N rows, [R, N].
    :param bounds_of_factor: the smallest and the largest α, in units of c.
    :param freedom: ν₀.
    """
    z, share = np.sqrt(np.ravel(squares)), 1.0 / len(squares)
    least, most = bounds_of_factor
    center = math.log(expected_factor(freedom, squares.shape[-1]))
    most_df = min(max(freedom, MIN_DF), MAX_DF)

    def loss(parameters: AnyNDArray) -> float:
        log_factor, log_excess = parameters
        df, deviation = 2.0 + math.exp(log_excess), math.exp(0.5 * log_factor)
        logs = stats.t.logpdf(z, df, scale=deviation * math.sqrt((df - 2.0) / df))
        log_prior = stats.gamma.logpdf(df, 2.0, scale=10.0)
        log_prior -= 0.5 * ((log_factor - center) / 0.5) ** 2
        return -float(share * np.sum(logs) + log_prior)

    bounds = [
        (center + math.log(least), center + math.log(most)),
        (math.log(MIN_DF - 2.0), math.log(most_df - 2.0)),
    ]
    start = [center, min(math.log(8.0), bounds[1][1])]
    found = minimize(loss, start, method="L-BFGS-B", bounds=bounds).x
    return math.exp(found[0]), 2.0 + math.exp(found[1])


def expected_factor(freedom: float, num_rows: int) -> float:
    """Return c: the variance of t_ν₀ of scale one, times (N + 1)/(N - 1); 1 for many rows.

    The second is that of errors where the mean and the variance of the same rows are the units.
    For fewer than `MIN_DF` the widest law that there is has the 90 % interval of t_ν₀ instead.
    """
    if freedom >= MAX_DF:
        return 1.0
    df = max(freedom, MIN_DF)
    ratio = stats.t.ppf(0.95, max(freedom, 1.0)) / stats.t.ppf(0.95, df)
    return float(ratio**2 * df / (df - 2.0) * (num_rows + 1) / max(num_rows - 1, 1))

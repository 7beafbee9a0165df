"""Scorers of whole predictive distributions, for `cross_val_score` and `GridSearchCV`.

As scikit-learn has it, larger is better, so that losses have the other sign. An estimator is a
`GVIRegressor`, a `GVIClassifier` for `neg_log_predictive_density`, or a pipeline that ends with
one::

    cross_val_score(gvi.GVIRegressor(), X, y, scoring=gvi.scorers.neg_crps)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy import special

from .._core import checks
from .sklearn import GVIClassifier, GVIRegressor

NUM_NODES = 40
"""The number of quantiles that stand for a distribution; the CRPS is right to some thousandths."""


def neg_log_predictive_density(estimator: Any, X: Any, y: Any) -> float:
    """Return minus the mean negative log density of y, or minus the log loss of labels y."""
    last, X = _last(estimator, X)
    if isinstance(last, GVIClassifier):
        y = np.asarray(y).reshape(-1)
        unknown = ~np.isin(y, last.classes_)
        if np.any(unknown):
            return -np.inf  # the probability of a class that was never seen is zero
        logs = last.predict_log_proba(X)
        return float(np.mean(logs[np.arange(len(y)), np.searchsorted(last.classes_, y)]))
    return float(np.mean(last.predict_log_density(X, y)))


def neg_crps(estimator: Any, X: Any, y: Any) -> float:
    """Return minus the mean continuous ranked probability score of y, an average over columns.

    It is the integral over levels τ of twice the pinball loss of the τ-quantile (Gneiting and
    Ranjan 2011, "Comparing density forecasts using threshold- and quantile-weighted scoring rules",
    equation 12), by a Gaussian quadrature.
    """
    last, X = _last(estimator, X)
    nodes, weights = special.roots_legendre(NUM_NODES)
    levels = 0.5 + 0.5 * nodes
    quantiles = _regressor(last).predict_quantiles(X, levels)
    error = np.asarray(y, dtype=float).reshape(quantiles.shape[:-1])[..., None] - quantiles
    pinball = np.maximum(levels * error, (levels - 1.0) * error)
    return -float(np.mean(pinball @ weights))


@dataclasses.dataclass(frozen=True)
class IntervalScore:
    """Minus the interval score of y: width, and 2/α for each unit that y is outside (α = 1 - c).

    As of Gneiting and Raftery (2007), "Strictly proper scoring rules, prediction, and estimation",
    equation 43, averaged over rows and columns.

    :param coverage: c, of the intervals.
    """

    coverage: float = 0.9

    def __post_init__(self) -> None:
        checks.coverage(self.coverage)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the score of an estimator's predictions of y at X."""
        last, X = _last(estimator, X)
        lower, upper = _regressor(last).predict_interval(X, self.coverage)
        y = np.asarray(y, dtype=float).reshape(lower.shape)
        outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
        return -float(np.mean(upper - lower + 2.0 / (1.0 - self.coverage) * outside))


interval_score: Callable[[Any, Any, Any], float] = IntervalScore()
"""That of 90 % intervals."""


def _last(estimator: Any, X: Any) -> tuple[Any, AnyNDArray]:
    """Return the last step of a pipeline, and what the steps before it make of X."""
    if hasattr(estimator, "steps"):
        return _last(estimator[-1], estimator[:-1].transform(X) if estimator[:-1].steps else X)
    if not isinstance(estimator, GVIRegressor | GVIClassifier):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; the score is of a GVIRegressor, a "
            "GVIClassifier, or a pipeline that ends with one."
        )
    return estimator, X


def _regressor(estimator: Any) -> GVIRegressor:
    checks.instance("estimator", estimator, GVIRegressor)
    return estimator

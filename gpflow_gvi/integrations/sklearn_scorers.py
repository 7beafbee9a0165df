"""Scorers of whole predictive distributions, for `cross_val_score` and `GridSearchCV`.

As scikit-learn has it, larger is better, so that losses have the other sign. An estimator is a
`GVIRegressor`, a `GVIClassifier` for `neg_log_predictive_density`, or a pipeline or search that
ends with one::

    cross_val_score(gvi.GVIRegressor(), X, y, scoring=gvi.scorers.neg_crps)

With `missing="ignore"` values of y that are missing are left out, as by `score`; the log density is
of all columns of a row together, and of rows where none is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ..likelihoods import is_gaussian
from .estimator_base import naming
from .sklearn import GVIClassifier, GVIRegressor

NUM_NODES = 40
"""The number of quantiles that stand for a distribution; the CRPS is right to some thousandths."""


def neg_log_predictive_density(estimator: Any, X: Any, y: Any) -> float:
    """Return minus the mean negative log density of y, or minus the log loss of labels y."""
    last, X = _last(estimator, X, y, GVIRegressor, GVIClassifier)
    if isinstance(last, GVIRegressor):
        Y = last._observed(y)
        whole = ~np.isnan(Y).any(axis=1)
        if not whole.any():
            raise ValueError(
                f"y has shape {Y.shape} and in no row a value in each column: there is nothing to "
                "score. Pass rows without missing values."
            )
        X = X if whole.all() else _safe_indexing(X, whole)
        return float(np.mean(last.predict_log_density(X, Y[whole])))
    is_class = np.reshape(y, (-1, 1)) == last.classes_  # [N, K]
    with np.errstate(divide="ignore"):  # the probability of a class that was never seen is zero
        return float(np.mean(np.log(np.sum(is_class * last.predict_proba(X), axis=1))))


def neg_crps(estimator: Any, X: Any, y: Any) -> float:
    """Return minus the mean continuous ranked probability score of y, an average over columns.

    Under Gaussian noise and without conformal intervals it is that of `predict_law`. Else
    it is the integral over levels τ of twice the pinball loss of the τ-quantile (Gneiting and
    Ranjan 2011, "Comparing density forecasts using threshold- and quantile-weighted scoring rules",
    equation 12), by a Gaussian quadrature.
    """
    last, X = _last(estimator, X, y, GVIRegressor)
    learned = last.learned_  # None if all of y was constant
    has_law = learned is not None and np.all(last._varies) and learned.calibration is None
    if has_law and is_gaussian(learned.likelihood):
        return -float(np.nanmean(learned.predict_law(last._rows(X)).crps(last._observed(y))))
    nodes, weights = special.roots_legendre(NUM_NODES)
    levels = 0.5 + 0.5 * nodes
    quantiles = last.predict_quantiles(X, levels)
    error = last._observed(y).reshape(quantiles.shape[:-1])[..., None] - quantiles
    pinball = np.maximum(levels * error, (levels - 1.0) * error)
    return -float(np.nanmean(pinball @ weights))


def interval_score(estimator: Any, X: Any, y: Any, coverage: float = 0.9) -> float:
    """Return minus the interval score of y: width, and 2/α for each unit outside (α = 1 - c).

    As of Gneiting and Raftery (2007), "Strictly proper scoring rules, prediction, and estimation",
    equation 43, averaged over rows and columns. `coverage` is c, that of the intervals.
    """
    last, X = _last(estimator, X, y, GVIRegressor)
    lower, upper = last.predict_interval(X, coverage)
    y = last._observed(y).reshape(lower.shape)
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return -float(np.nanmean(upper - lower + 2.0 / (1.0 - coverage) * outside))


def _last(estimator: Any, X: Any, y: Any, *kinds: type) -> tuple[Any, Any]:
    """Return the last step of a pipeline or search, and what the steps before it make of X."""
    with naming("X or y"):
        check_consistent_length(X, y)
    if hasattr(estimator, "best_estimator_"):
        return _last(estimator.best_estimator_, X, y, *kinds)
    if hasattr(estimator, "steps"):
        inputs = estimator[:-1].transform(X) if estimator[:-1].steps else X
        return _last(estimator[-1], inputs, y, *kinds)
    if not isinstance(estimator, kinds):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; the score is of a "
            f"{' or a '.join(kind.__name__ for kind in kinds)}, in the units of its y, or of a "
            "pipeline or search that ends with one."
        )
    check_is_fitted(estimator)
    return estimator, X

"""`learn` on ScoringBench: a wrapper with its interface, and a trial of it on made-up data.

    python -m benchmarks.scoringbench

ScoringBench (github.com/jonaslandsgesell/ScoringBench) compares predictive distributions on 97 sets
of regression data, which it downloads. With the network, in a copy of it: add to `MODELS` in
`scoringbench/univariate/models.py`

    "gpflow_gvi": lambda: __import__("benchmarks.scoringbench", fromlist=["GVI"]).GVI(),

and run `PYTHONPATH=<this repository> python run_bench_regression.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import trapezoid
from sklearn.datasets import make_friedman1
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

import gpflow_gvi as gvi

LEVELS = np.r_[0.001, 0.005, np.arange(1, 100) / 100.0, 0.995, 0.999]
"""The quantiles that stand for a distribution."""


class GVI:
    """`GVIRegressor` after an imputer, as a wrapper of ScoringBench.

    :param container: what takes quantiles [N, Q], their levels [Q], means [N], and the range of the
        targets as `train_range`; by default ScoringBench's own.
    :param options: those of the regressor.
    """

    def __init__(self, container: Callable[..., Any] | None = None, **options: Any) -> None:
        self._container = container
        regressor = gvi.GVIRegressor(**{"random_state": 0, **options})
        self.pipeline = make_pipeline(SimpleImputer(keep_empty_features=True), regressor)

    def fit(self, X: Any, y: Any) -> GVI:
        """Learn from rows X [N, D], in which numbers may be missing, with a finite y [N]."""
        X, y = _numbers(X), np.asarray(y, float).reshape(-1)
        known = np.isfinite(y)
        self.pipeline.fit(X[known], y[known])
        self.train_range = float(y[known].min()), float(y[known].max())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the means at rows: [N]."""
        return np.asarray(self.pipeline.predict(_numbers(X)))

    def predict_distribution(self, X: Any) -> Any:
        """Return the predictive distributions at rows."""
        container = self._container
        if container is None:
            from scoringbench.univariate.wrappers.base import DistributionPrediction

            container = DistributionPrediction.from_multi_quantile
        X = _numbers(X)
        quantiles = self.pipeline[-1].predict_quantiles(self.pipeline[:-1].transform(X), LEVELS)
        return container(quantiles, LEVELS, self.predict(X), train_range=self.train_range)


def _numbers(X: Any) -> np.ndarray:
    """Return rows as numbers, NaN where they are missing or infinite."""
    X = np.asarray(X, float)
    return np.where(np.isfinite(X), X, np.nan)


def pinball(quantiles: np.ndarray, levels: np.ndarray, y: np.ndarray) -> float:
    """Return twice the mean pinball loss, which is near the CRPS: by the trapezoidal rule."""
    error = y[:, None] - quantiles
    losses = np.mean(np.maximum(levels * error, (levels - 1.0) * error), axis=0)
    return float(2.0 * trapezoid(losses, levels))


def main() -> None:
    """Print scores and seconds on made-up data of the sizes that ScoringBench has."""
    print(
        "| rows | columns | CRPS | that of the training targets | seconds |\n|---|---|---|---|---|"
    )
    for N, D in ((200, 5), (1000, 10)):
        X, y = make_friedman1(N + 200, n_features=D, noise=1.0, random_state=0)
        X[::17, 0] = np.nan
        start = time.process_time()
        model = GVI(container=lambda *parts, **_: parts).fit(X[:N], y[:N])
        own = pinball(*model.predict_distribution(X[N:])[:2], y[N:])
        base = pinball(np.quantile(y[:N], LEVELS)[None], LEVELS, y[N:])
        print(f"| {N} | {D} | {own:.3f} | {base:.3f} | {time.process_time() - start:.0f} |")


if __name__ == "__main__":
    main()

"""The default choices of `learn` for labels: the kernels of P, and classifiers it may be around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpflow.kernels import Kernel, Linear

from .recipe import around, one_kernel, shared_kernel

if TYPE_CHECKING:
    from .start import TrainingData

MIN_ROWS_OF_LENGTHSCALES = 20
"""The number of rows for each feature from which on lengthscales are fitted for each."""

MIN_ROWS_OF_TREES = 500
"""Of fewer rows no trees are learned by default: they hardly know more than P does."""

MAX_CLASSES_OF_BOOSTING = 5
"""Boosting fits a tree for each class at a time, so that it is left out for more."""


def kernels(N: int, D: int) -> list[Kernel]:
    """Return kernels to choose among, for N rows of D inputs in standard units.

    A linear function and a squared exponential with one lengthscale, or with one for each feature
    where there are rows enough to find them.
    """
    of_each = D > 1 and N >= MIN_ROWS_OF_LENGTHSCALES * D
    return [shared_scale(D), *([one_kernel(D) + _linear(D)] if of_each else [])]


def shared_scale(D: int) -> Kernel:
    """Return the kernel of a linear function and one with the same scale for all features."""
    return shared_kernel(D) + _linear(D)


def predictors(data: TrainingData) -> list[Any]:
    """Return classifiers whose cross-fitted probabilities P may be around: ensembles of trees."""
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    if data.D == 1 or len(data.X) < MIN_ROWS_OF_TREES:
        return []
    trees = ExtraTreesClassifier(200, min_samples_leaf=3, random_state=data.seed)
    if data.J > MAX_CLASSES_OF_BOOSTING:
        return [trees]
    boosting = HistGradientBoostingClassifier(
        learning_rate=0.06,
        max_iter=100,
        max_leaf_nodes=16,
        min_samples_leaf=5,
        l2_regularization=1.0,
        max_features=0.5,
        early_stopping=False,
        random_state=data.seed,
    )
    return [boosting, trees]


def _linear(D: int) -> Kernel:
    kernel = Linear(variance=1.0 / D)
    kernel.variance.prior = around(1.0 / D)
    return kernel

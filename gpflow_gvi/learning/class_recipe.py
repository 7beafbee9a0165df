"""The default choices of `learn` for labels: the kernels of P, and classifiers it may be around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gpflow.kernels import Kernel

from .estimators import (
    MAX_LEAVES,
    MAX_ROWS_OF_RANDOMISED,
    MAX_ROWS_OF_SMALL_TREES,
    MIN_ROWS_OF_NETWORK,
    perceptron,
)
from .recipe import MIN_ROWS_OF_LINEAR, linear, one_kernel, shared_kernel

if TYPE_CHECKING:
    from .start import TrainingData

MIN_ROWS_OF_LENGTHSCALES = 20
"""The number of rows for each feature from which on lengthscales are fitted for each."""

SHARE_OF_LENGTHSCALE = 0.25
"""Of the usual lengthscale, where a fit of a function that varies fast starts."""

MIN_ROWS_OF_TREES = 40
"""The number of rows from which on P may be around trees."""

MIN_ROWS_OF_CLASS = 10
"""Where a class has fewer rows nothing is stopped early: scikit-learn parts the rows by classes for
that, and raises where a fold leaves a class a single row."""

MAX_CLASSES_OF_BOOSTING = 5
"""Boosting fits a tree for each class at a time, so that it is left out for more."""


def kernels(N: int, D: int) -> list[Kernel]:
    """Return kernels to choose among, for N rows of D inputs in standard units.

    A linear function and a squared exponential with one lengthscale, or with one for each feature
    where there are rows enough to find them; and a function that varies fast.
    """
    of_each = D > 1 and N >= MIN_ROWS_OF_LENGTHSCALES * D
    return [shared_scale(D), fast(D), *([one_kernel(D) + linear(D)] if of_each else [])]


def shared_scale(D: int) -> Kernel:
    """Return the kernel of a linear function and one with the same scale for all features."""
    return shared_kernel(D) + linear(D)


def fast(D: int) -> Kernel:
    """Return the kernel of a function alone that varies fast, if the data do not say otherwise.

    From the usual lengthscale the evidence of labels of such a function is the greater, the less f
    varies: a fit would end where there is none.
    """
    kernel = shared_kernel(D)
    kernel.lengthscales.assign(SHARE_OF_LENGTHSCALE * kernel.lengthscales.numpy())
    return kernel


def predictors(data: TrainingData) -> list[Any]:
    """Return classifiers whose cross-fitted probabilities P may be around.

    They are ensembles of trees; of few rows where a kernel cannot find lengthscales a linear
    function of some features; and of many rows a network.
    """
    from sklearn.neural_network import MLPClassifier

    N, D = data.X.shape
    if D == 1:
        return []
    few = data.J == 1 and MIN_ROWS_OF_LINEAR <= N < MIN_ROWS_OF_LENGTHSCALES * D
    return [
        *([_of_few_features()] if few else []),
        *(_trees(data) if N >= MIN_ROWS_OF_TREES else []),
        *([perceptron(MLPClassifier, data)] if N >= MIN_ROWS_OF_NETWORK and _stops(data) else []),
    ]


def _stops(data: TrainingData) -> bool:
    """Return whether training may stop early: each class has enough rows."""
    _, counts = np.unique(data.Y, return_counts=True)
    return bool(counts.min() >= MIN_ROWS_OF_CLASS)


def _trees(data: TrainingData) -> list[Any]:
    """Return ensembles of trees.

    Randomised trees are grown until labels differ no more. The average over many of them is not
    certain, and how certain P is is decided by its weight. Of few rows there are two boosted
    ensembles: where labels hardly have noise, more and smaller trees with leaves of two rows
    predict them better.
    """
    from sklearn.base import clone
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    N, seed = len(data.X), data.seed
    leaf = max(1, N // MAX_LEAVES)
    some = ExtraTreesClassifier(100, min_samples_leaf=leaf, random_state=seed)
    if data.J > MAX_CLASSES_OF_BOOSTING:
        return [some.set_params(n_estimators=200)]
    many = N > MAX_ROWS_OF_SMALL_TREES
    boosting = HistGradientBoostingClassifier(
        learning_rate=0.1 if many else 0.06,
        max_iter=300 if many else 100,
        max_leaf_nodes=63 if many else 16,
        min_samples_leaf=10 if many else 5,
        l2_regularization=1.0,
        max_features=0.5,
        early_stopping=many and _stops(data),
        n_iter_no_change=20,
        random_state=seed,
    )
    if N > MAX_ROWS_OF_RANDOMISED:
        return [boosting]
    every = ExtraTreesClassifier(100, max_features=None, min_samples_leaf=leaf, random_state=seed)
    if many:
        return [boosting, some, every]
    longer = clone(boosting).set_params(max_iter=300, max_leaf_nodes=8, min_samples_leaf=2)
    return [boosting, longer, some, every]


def _of_few_features() -> Any:
    """Return a logistic regression on the features that a Lasso of the labels takes."""
    from sklearn.feature_selection import SelectFromModel
    from sklearn.linear_model import LassoCV, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Of coefficients that are all zero, each is as large as their mean, and all features remain.
    select = SelectFromModel(LassoCV(eps=1e-2, cv=5), threshold="mean")
    return make_pipeline(StandardScaler(), select, LogisticRegression())

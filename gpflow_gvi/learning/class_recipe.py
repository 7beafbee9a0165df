"""The default choices of `learn` for labels: the kernels of P, and classifiers it may be around."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpflow.kernels import Kernel, Linear

from .recipe import MIN_ROWS_OF_LINEAR, around, one_kernel, shared_kernel

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
    """Return classifiers whose cross-fitted probabilities P may be around.

    They are ensembles of trees, and of few rows where a kernel cannot find lengthscales a linear
    function of some features.
    """
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    N, D = data.X.shape
    if D == 1 or N < MIN_ROWS_OF_TREES:
        few = MIN_ROWS_OF_LINEAR <= N < MIN_ROWS_OF_LENGTHSCALES * D
        return [_of_few_features()] if few and D > 1 and data.J == 1 else []
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


def _of_few_features() -> Any:
    """Return a logistic regression on the features that a Lasso of the labels takes."""
    from sklearn.feature_selection import SelectFromModel
    from sklearn.linear_model import LassoCV, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Of coefficients that are all zero, each is as large as their mean, and all features remain.
    select = SelectFromModel(LassoCV(eps=1e-2, cv=5), threshold="mean")
    return make_pipeline(StandardScaler(), select, LogisticRegression())


def _linear(D: int) -> Kernel:
    kernel = Linear(variance=1.0 / D)
    kernel.variance.prior = around(1.0 / D)
    return kernel

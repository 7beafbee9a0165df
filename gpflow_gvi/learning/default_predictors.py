"""The estimators of scikit-learn that P may be around by default."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from .log_process import MAX_ROWS_OF_EVIDENCE

if TYPE_CHECKING:
    from .recipe import Recipe
    from .start import TrainingData

BATCH_SIZE, MAX_STEPS = 200, 4000
"""The rows in a training step of a network, and the number of steps that ten epochs may exceed."""

PENALTIES: dict[str, Any] = {"eps": 1e-2, "alphas": 20, "cv": 5}
"""How a Lasso chooses its penalty. Smaller ones than a hundredth of the largest take many more
iterations, and more of them predict no better."""


@dataclasses.dataclass(frozen=True)
class Regressors:
    """Estimators of real-valued observations."""

    data: TrainingData
    recipe: Recipe

    def trees(self) -> list[Any]:
        """Return gradient boosting with histograms and, for not too many rows, randomised trees.

        Geurts, Ernst and Wehenkel (2006), "Extremely randomized trees".
        """
        from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

        N, seed = len(self.data.X), self.data.seed
        if many := self.recipe.max_rows_of_small_trees < N:
            count, leaves, rate = 1000, 63, 0.1
        else:
            few = self.recipe.max_rows_of_few_leaves >= N
            count, leaves, rate = (150, 8, 0.1) if few else (300, 16, 0.06)
        boosting = HistGradientBoostingRegressor(
            learning_rate=rate,
            max_iter=count,
            max_leaf_nodes=leaves,
            min_samples_leaf=10 if many else max(2, min(20, N // 50)),
            l2_regularization=1.0,
            max_features=0.5,
            early_stopping=many,
            n_iter_no_change=20,
            random_state=seed,
        )
        boosted = of_outputs(boosting, self.data.J)
        if self.recipe.max_rows_of_randomised < N:
            return [boosted]
        leaf = max(1, N // self.recipe.max_leaves)
        return [boosted, ExtraTreesRegressor(100, min_samples_leaf=leaf, random_state=seed)]

    def lasso(self) -> list[Any]:
        """Return a linear function of few features."""
        from sklearn.linear_model import LassoCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        linear = make_pipeline(StandardScaler(), LassoCV(**PENALTIES))
        return [of_outputs(linear, self.data.J)]

    def networks(self) -> list[Any]:
        """Return a network that standardises its rows and its outputs.

        It learns a smooth function of several features better than trees and few inducing points.
        """
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.neural_network import MLPRegressor
        from sklearn.preprocessing import StandardScaler

        layers = _perceptron(MLPRegressor, self.data, self.recipe)
        return [TransformedTargetRegressor(layers, transformer=StandardScaler())]


@dataclasses.dataclass(frozen=True)
class Classifiers:
    """Estimators of labels."""

    data: TrainingData
    recipe: Recipe

    def trees(self) -> list[Any]:
        """Return boosted trees of few classes and, for not too many rows, randomised trees.

        These are grown until labels differ no more. The average over many of them is not certain,
        and how certain P is is decided by its weight.
        """
        from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

        N, seed = len(self.data.X), self.data.seed
        leaf = max(1, N // self.recipe.max_leaves)
        randomised = ExtraTreesClassifier(100, min_samples_leaf=leaf, random_state=seed)
        if self.recipe.max_classes_of_boosting < self.data.J:
            return [randomised.set_params(n_estimators=200)]
        many = self.recipe.max_rows_of_small_trees < N
        boosting = HistGradientBoostingClassifier(
            learning_rate=0.1 if many else 0.06,
            max_iter=300 if many else 100,
            max_leaf_nodes=63 if many else 16,
            min_samples_leaf=10 if many else 5,
            l2_regularization=1.0,
            max_features=0.5,
            early_stopping=many and self._stops,
            n_iter_no_change=20,
            random_state=seed,
        )
        return [boosting] if self.recipe.max_rows_of_randomised < N else [boosting, randomised]

    def lasso(self) -> list[Any]:
        """Return a logistic regression on the features that a Lasso of two classes takes."""
        from sklearn.feature_selection import SelectFromModel
        from sklearn.linear_model import LassoCV, LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if self.data.J > 1:
            return []
        # If all coefficients are zero, each is as large as their mean: all features remain.
        select = SelectFromModel(LassoCV(**PENALTIES), threshold="mean")
        return [make_pipeline(StandardScaler(), select, LogisticRegression())]

    def networks(self) -> list[Any]:
        """Return a network, if it can be stopped early."""
        from sklearn.neural_network import MLPClassifier

        return [_perceptron(MLPClassifier, self.data, self.recipe)] if self._stops else []

    @property
    def _stops(self) -> bool:
        """Whether training may stop early: each class has enough rows."""
        _, counts = np.unique(self.data.Y, return_counts=True)
        return bool(counts.min() >= self.recipe.min_rows_of_class)


def noise_models(X: Any, errors: Any, process: Any) -> list[Any]:
    """Return estimators of the pattern of the noise, to choose among.

    They are fitted to squared errors, which are Gamma distributed under Gaussian noise. The process
    predicts them better than boosted trees where all rows tell its hyper-parameters.

    :param X: the inputs, in the units that the estimators will have, [N, D].
    :param errors: squared, [N, J].
    :param process: a Gaussian process of the log variance.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    if X.shape[-1] == 1 or len(X) <= MAX_ROWS_OF_EVIDENCE:
        return [process]
    boosting = HistGradientBoostingRegressor(
        loss="gamma",
        learning_rate=0.05,
        max_iter=100,
        max_leaf_nodes=8,
        min_samples_leaf=max(10, len(X) // 20),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    )
    return [of_outputs(boosting, errors.shape[-1]), process]


def of_columns(estimator: Any, columns: Any) -> Any:
    """Return an estimator that sees some columns of X alone."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline

    return make_pipeline(ColumnTransformer([("features", "passthrough", columns)]), estimator)


def of_outputs(estimator: Any, J: int) -> Any:
    """Return an estimator of one output as one of J."""
    from sklearn.multioutput import MultiOutputRegressor

    return estimator if J == 1 else MultiOutputRegressor(estimator)


def _perceptron(kind: type, data: TrainingData, recipe: Recipe) -> Any:
    """Return a network of two hidden layers, by Adam until a tenth of its rows gains no more."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    is_small = len(data.X) <= recipe.max_rows_of_small_networks
    layers = kind(
        hidden_layer_sizes=(50, 50) if is_small else (100, 100),
        learning_rate_init=3e-3,
        batch_size=BATCH_SIZE if is_small else 5 * BATCH_SIZE,
        max_iter=max(10, MAX_STEPS * BATCH_SIZE // len(data.X)),
        early_stopping=True,
        n_iter_no_change=15,
        random_state=data.seed,
    )
    return make_pipeline(StandardScaler(), layers)

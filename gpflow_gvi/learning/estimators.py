"""The estimators of scikit-learn that P of real-valued observations may be around by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .start import TrainingData

MAX_ROWS_OF_FEW_LEAVES = 500
"""Up to this number of rows there are half as many boosted trees, of half as many leaves."""

MAX_ROWS_OF_SMALL_TREES = 5000
"""Up to this number of rows the trees are those for small data."""

MAX_LEAVES = 5000
"""About the maximal number of leaves of a randomised tree: of more rows a leaf has several."""

MAX_ROWS_OF_RANDOMISED = 20_000
"""Of more rows trees are boosted alone: it takes long to grow randomised ones."""


MIN_ROWS_OF_NETWORK = 1000
"""Of fewer rows no network is trained by default."""

BATCH_SIZE, MAX_STEPS = 200, 4000
"""Of the training of a network: the rows in a step, and the maximal number of steps."""


def linear_of_few(J: int) -> Any:
    """Return an estimator of a linear function of few features."""
    from sklearn.linear_model import LassoCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Smaller penalties than a hundredth of the largest one take many more iterations.
    return of_outputs(make_pipeline(StandardScaler(), LassoCV(eps=1e-2, cv=5)), J)


def trees(data: TrainingData) -> list[Any]:
    """Return ensembles of trees."""
    from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

    N, seed = len(data.X), data.seed
    many = N > MAX_ROWS_OF_SMALL_TREES
    if many:
        count, leaves, rate = 1000, 63, 0.1
    else:
        count, leaves, rate = (150, 8, 0.1) if N <= MAX_ROWS_OF_FEW_LEAVES else (300, 16, 0.06)
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
    if N > MAX_ROWS_OF_RANDOMISED:
        return [of_outputs(boosting, data.J)]
    leaf = max(1, N // MAX_LEAVES)
    randomised = ExtraTreesRegressor(100, min_samples_leaf=leaf, random_state=seed)
    return [of_outputs(boosting, data.J), randomised]


def network(data: TrainingData) -> Any:
    """Return a network that standardises its rows and its outputs."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler

    return TransformedTargetRegressor(perceptron(MLPRegressor, data), transformer=StandardScaler())


def perceptron(kind: type, data: TrainingData) -> Any:
    """Return a network of two hidden layers, by Adam until a tenth of its rows gains no more.

    A function that is smooth in many features has more detail than trees or few inducing points
    can tell from many rows.

    :param kind: scikit-learn's `MLPRegressor` or `MLPClassifier`.
    :param data: the rows to learn from.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    layers = kind(
        hidden_layer_sizes=(50, 50),
        learning_rate_init=3e-3,
        batch_size=BATCH_SIZE,
        max_iter=max(10, MAX_STEPS * BATCH_SIZE // len(data.X)),
        early_stopping=True,
        n_iter_no_change=15,
        random_state=data.seed,
    )
    return make_pipeline(StandardScaler(), layers)


def of_outputs(estimator: Any, J: int) -> Any:
    """Return an estimator of one output as one of J."""
    from sklearn.multioutput import MultiOutputRegressor

    return estimator if J == 1 else MultiOutputRegressor(estimator)

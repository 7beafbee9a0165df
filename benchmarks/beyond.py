"""How rows beyond the others are predicted: what a model does where it has no data.

    GPFLOW_GVI_DATA=... python -m benchmarks.beyond --output beyond.json

Of each table the rows for testing are not random: they are the twentieth with the smallest values
of one feature and the twentieth with the largest. It is the feature of more than 20 values with the
largest rank correlation with y. Tables are those of at most 800 rows where that is 0.3 or more.
Figures are in the units of the rows to learn from.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from scipy import stats
from sklearn.linear_model import BayesianRidge

if __package__:
    from .data import Split, standardised
    from .regression import default, gpr_of_scikit_learn
    from .trees import Prediction, Row, add_arguments, hist_gradient_boosting, run
else:
    from data import Split, standardised
    from regression import default, gpr_of_scikit_learn
    from trees import Prediction, Row, add_arguments, hist_gradient_boosting, run

SMALL = (
    *("Arbuthnot", "Cars93", "Clothing", "CrohnD", "Electricity", "Gasoline", "Hitters", "Labour"),
    *("PErisk", "Salaries", "anorexia", "chorSub", "dietox", "gilgais", "incomeInequality"),
    *("iris", "kidney", "msleep", "planets", "stagec", "urine", "water"),
)
TABLES = ("autompg", "autos", "concreteslump", "pendulum", "stock")
MIN_VALUES = 20
"""Of a feature of fewer values no rows are beyond the others."""


def beyond(part: Split) -> Split:
    """Return the same rows, parted by a feature: the ends are for testing."""
    X, Y = np.concatenate([part.X, part.X_test]), np.concatenate([part.Y, part.Y_test])
    features = [x for x in X.T if len(np.unique(x)) > MIN_VALUES]
    strongest = max(features, key=lambda x: abs(stats.spearmanr(x, Y[:, 0]).statistic))
    order, end = np.argsort(strongest, kind="stable"), max(len(X) // 20, 2)
    test, train = np.r_[order[:end], order[-end:]], order[end:-end]
    train = np.random.default_rng(0).permutation(train)
    return standardised(Split(X[train], Y[train], X[test], Y[test]))


def ridge(part: Split, seed: int) -> Prediction:
    """Bayesian ridge regression."""
    mean, deviation = (
        BayesianRidge().fit(part.X, part.Y[:, 0]).predict(part.X_test, return_std=True)
    )
    return mean, np.square(deviation)


def constant(part: Split, seed: int) -> Prediction:
    """The mean and the variance of y."""
    shape = len(part.X_test)
    return np.full(shape, np.mean(part.Y)), np.full(shape, np.var(part.Y))


MODELS: dict[str, Callable[[Split, int], Prediction]] = {
    "learn": default,
    "scikit-learn GPR": gpr_of_scikit_learn,
    "ridge": ridge,
    "HistGB, 5 folds": hist_gradient_boosting,
    "constant": constant,
}


def table(rows: Sequence[Row]) -> str:
    """Return what each model is worth on all tables, as Markdown."""
    models = list(dict.fromkeys(row.model for row in rows))
    figures = {(row.data, row.model): row for row in rows}
    data = list(dict.fromkeys(row.data for row in rows))
    crps = np.array([[figures[d, m].crps for m in models] for d in data])  # [tables, models]
    nll = np.array([[figures[d, m].nll for m in models] for d in data])
    inside = np.array([[figures[d, m].coverage for m in models] for d in data])
    ranks = np.mean(stats.rankdata(crps, axis=1), axis=0)
    relative = np.exp(np.mean(np.log(crps / np.min(crps, axis=1, keepdims=True)), axis=0))
    head = "mean rank by CRPS", "CRPS over the least", "median NLL", "in 95 %", "tables below 80 %"
    lines = [f"| model | {' | '.join(head)} |", f"| --- |{' --: |' * len(head)}"]
    for m, model in enumerate(models):
        covered = f"{np.mean(inside[:, m]):.2f} | {np.sum(inside[:, m] < 0.8)} of {len(data)}"
        lines.append(
            f"| {model} | {ranks[m]:.2f} | {relative[m]:.2f} | {np.median(nll[:, m]):.2f} "
            f"| {covered} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the models, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, MODELS)
    parser.set_defaults(data=[*TABLES, *(f"numbers_{name}" for name in SMALL)], splits=[0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(table(run(options, MODELS, beyond)))


if __name__ == "__main__":
    main()

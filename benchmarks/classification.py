"""Class probabilities of `learn` and `GVIClassifier` by default, beside those of other classifiers.

    GPFLOW_GVI_DATA=... python -m benchmarks.classification --output ours.json
    pip install numpy scikit-learn catboost   # in an environment of its own
    GPFLOW_GVI_DATA=... python -m benchmarks.classification --models CatBoost --output trees.json
    python -m benchmarks.classification --tables ours.json trees.json

The banana data come from the folder, and half of the 400 rows are for testing; the others are
scikit-learn's, and a fifth of each is for testing. Splits are random, and stratified.

`--data concrete:2 energy:3` are regression data of the folder whose targets are cut into two or
three classes, at quantiles of the part for training; their splits are those of the literature.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __package__:
    from .data import Split, add_argument, add_quick, load_split
else:
    from data import Split, add_argument, add_quick, load_split

NUM_BINS = 15
MAX_ROWS_OF_CUBIC = 1000
"""Of tables with more rows there is no GPC and no SVC, whose time is that of N³."""
Fit = Callable[[Split, int], np.ndarray]


class Row(NamedTuple):
    """One model on one split."""

    data: str
    split: int
    model: str
    log_loss: float
    accuracy: float
    ece: float
    seconds: float
    """Of processor time."""


def load(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Return X [N, D] and labels 0, 1, ... [N]."""
    if name == "banana":
        if folder is None:
            raise SystemExit("The banana data need --data-dir, or GPFLOW_GVI_DATA.")
        with np.load(folder / "clf_banana.npz") as file:
            return file["x"], np.unique(file["y"].ravel(), return_inverse=True)[1]
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(return_X_y=True)


def split_of(name: str, folder: Path | None, seed: int) -> Split:
    """Return a random split with the same shares of the classes in both parts, or a given one."""
    from sklearn.model_selection import train_test_split

    if ":" in name:
        return cut(name, folder, seed)
    X, y = load(name, folder)
    test = 0.5 if name == "banana" else 0.2
    X, X_test, y, y_test = train_test_split(X, y, test_size=test, stratify=y, random_state=seed)
    return Split(X, y, X_test, y_test)


def cut(name: str, folder: Path | None, split: int) -> Split:
    """Return regression data with K classes of equal size in the part for training."""
    if folder is None:
        raise SystemExit("Data of the folder need --data-dir, or GPFLOW_GVI_DATA.")
    table, _, K = name.partition(":")
    X, Y, X_test, Y_test = load_split(folder, table, split)
    ends = np.quantile(Y, np.arange(1, int(K)) / int(K))
    return Split(X, np.searchsorted(ends, Y[:, 0]), X_test, np.searchsorted(ends, Y_test[:, 0]))


def measured(data: str, split: int, model: str, part: Split, fit: Fit) -> Row:
    """Return the figures of a model's probabilities of the classes at the rows for testing."""
    start = time.process_time()
    p = np.asarray(fit(part, split))
    seconds = time.process_time() - start
    y, N = part.Y_test, len(part.Y_test)
    correct, confidence = p.argmax(axis=1) == y, p.max(axis=1)
    log_loss = -np.mean(np.log(np.maximum(p[np.arange(N), y], 1e-15)))
    bins = np.clip(np.ceil(confidence * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    ece = np.sum(np.abs(np.bincount(bins, confidence - correct))) / N
    return Row(data, split, model, float(log_loss), float(np.mean(correct)), float(ece), seconds)


def learn(part: Split, seed: int) -> np.ndarray:
    """`learn` of labels that are names, all else by default."""
    import gpflow_gvi as gvi

    names = np.array([f"class {label}" for label in part.Y])
    return gvi.learn((part.X, names), seed=seed).predict_proba(part.X_test)


def classifier(part: Split, seed: int) -> np.ndarray:
    """The estimator by default."""
    from gpflow_gvi.integrations.sklearn import GVIClassifier

    return GVIClassifier(random_state=seed).fit(part.X, part.Y).predict_proba(part.X_test)


def _standardised(estimator: Any, part: Split) -> np.ndarray:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), estimator).fit(part.X, part.Y).predict_proba(part.X_test)


def logistic_regression(part: Split, seed: int) -> np.ndarray:
    """scikit-learn's, with its regularisation by default."""
    from sklearn.linear_model import LogisticRegression

    return _standardised(LogisticRegression(max_iter=5000), part)


def laplace(part: Split, seed: int) -> np.ndarray:
    """scikit-learn's Gaussian process, with a scaled squared exponential."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0) * RBF(np.sqrt(part.X.shape[1]))
    return _standardised(GaussianProcessClassifier(kernel, random_state=seed), part)


def svc(part: Split, seed: int) -> np.ndarray:
    """A support vector machine with probabilities by Platt's cross-validated sigmoids."""
    from sklearn.svm import SVC

    return _standardised(SVC(probability=True, random_state=seed), part)


def boosting(part: Split, seed: int) -> np.ndarray:
    """scikit-learn's gradient boosting with histograms."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return _standardised(HistGradientBoostingClassifier(random_state=seed), part)


def catboost(part: Split, seed: int) -> np.ndarray:
    """CatBoost by default."""
    from catboost import CatBoostClassifier

    options = {"random_seed": seed, "verbose": False, "thread_count": 1}
    return _standardised(CatBoostClassifier(**options, allow_writing_files=False), part)


def network(part: Split, seed: int) -> np.ndarray:
    """Two hidden layers of 64 units, with a temperature that a fifth of the rows decide."""
    from scipy.optimize import minimize_scalar
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, X_val, y, y_val = train_test_split(
        part.X, part.Y, test_size=0.2, stratify=part.Y, random_state=seed
    )
    net = MLPClassifier((64, 64), max_iter=500, random_state=seed)
    model = make_pipeline(StandardScaler(), net).fit(X, y)

    def probabilities(X: np.ndarray, temperature: float) -> np.ndarray:
        logits = np.log(np.maximum(model.predict_proba(X), 1e-30)) / temperature
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    def loss(log_temperature: float) -> float:
        p = probabilities(X_val, np.exp(log_temperature))
        return -float(np.mean(np.log(np.maximum(p[np.arange(len(y_val)), y_val], 1e-15))))

    best = minimize_scalar(loss, bounds=(-2.0, 4.0), method="bounded").x
    return probabilities(part.X_test, np.exp(best))


MODELS: dict[str, Fit] = {
    "learn": learn,
    "GVIClassifier": classifier,
    "logistic regression": logistic_regression,
    "GPC": laplace,
    "SVC": svc,
    "HistGB": boosting,
    "CatBoost": catboost,
    "network, temperature": network,
}


OURS = ("learn", "GVIClassifier")
FIGURES = ("log_loss", "accuracy", "ece")


def values(rows: Sequence[Row], data: str, model: str, figure: str) -> np.ndarray:
    """Return a figure of a model on a data set, split by split."""
    found = {
        row.split: getattr(row, figure) for row in rows if (row.data, row.model) == (data, model)
    }
    return np.array([found[split] for split in sorted(found)])


def table(rows: Sequence[Row], figure: str) -> list[str]:
    """Return a Markdown table of the means over the splits, and the errors of log losses."""
    models = [name for name in MODELS if any(row.model == name for row in rows)]
    with_rival = figure == "log_loss" and "learn" in models and set(models) - set(OURS)
    head = [figure, *models, *(["learn less the best other"] if with_rival else [])]
    lines = [f"| {' | '.join(head)} |", "| --- |" + " ---: |" * (len(head) - 1)]
    for data in dict.fromkeys(row.data for row in rows):
        of = {model: values(rows, data, model, figure) for model in models}
        cells = [_average(found, "" if figure == "log_loss" else None) for found in of.values()]
        if with_rival:
            others = {name: v.mean() for name, v in of.items() if len(v) and name not in OURS}
            best = min(others, key=others.__getitem__)
            both = len(of[best]) == len(of["learn"])
            gap = of["learn"] - of[best] if both else of["learn"].mean() - of[best].mean()
            cells.append(f"{_average(np.atleast_1d(gap), '+')}, {best}")
        lines.append(f"| {data} | {' | '.join(cells)} |")
    if with_rival:
        ranks = mean_ranks(rows, [name for name in models if name != "GVIClassifier"])
        cells = [f"{ranks[name]:.1f}" if name in ranks else "" for name in models]
        lines.append(f"| mean rank | {' | '.join([*cells, ''])} |")
    return [*lines, ""]


def mean_ranks(rows: Sequence[Row], models: Sequence[str]) -> dict[str, float]:
    """Return the mean ranks of models by log loss, among those that were run on a data set."""
    from scipy.stats import rankdata

    ranks = []
    for data in dict.fromkeys(row.data for row in rows):
        found = [values(rows, data, model, "log_loss") for model in models]
        losses = [of_splits.mean() if len(of_splits) else np.nan for of_splits in found]
        ranks.append(rankdata(losses, nan_policy="omit"))
    return dict(zip(models, np.nanmean(ranks, axis=0).tolist(), strict=True))


def _average(found: np.ndarray, sign: str | None) -> str:
    """Return the mean, and its standard error unless there is no format of a sign."""
    if not len(found):
        return ""
    if sign is None or len(found) == 1:
        return f"{found.mean():{sign or ''}.3f}"
    return f"{found.mean():{sign}.3f} ± {found.std(ddof=1) / np.sqrt(len(found)):.3f}"


def main() -> None:
    """Run the models and write the rows, or read rows and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ["banana", "breast_cancer", "digits", "wine", "iris"]
    parser.add_argument("--data", nargs="+", default=names, help="of these, or TABLE:CLASSES")
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    own = [name for name in MODELS if name != "CatBoost"]
    parser.add_argument("--models", nargs="+", default=own, choices=list(MODELS))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--tables", type=Path, nargs="+", help="files of rows to print tables of")
    add_argument(parser)
    add_quick(parser)
    options = parser.parse_args()
    if options.tables:
        rows = [Row(**row) for path in options.tables for row in json.loads(path.read_text())]
        print("\n".join(line for figure in FIGURES for line in table(rows, figure)))
        return
    warnings.filterwarnings("ignore", category=FutureWarning)
    rows: list[Row] = []
    asked = options.models
    if importlib.util.find_spec("catboost") is None and "CatBoost" in asked:
        asked = [model for model in asked if model != "CatBoost"]
        print("catboost is not installed, left out", flush=True)
    if options.output:
        options.output.write_text("[]")
    for name in options.data[: 1 if options.quick else None]:
        for split in options.splits[: 1 if options.quick else None]:
            part = split_of(name, options.data_dir and Path(options.data_dir), split)
            if options.quick:
                part = Split(*(value[:60] for value in part))
            models = asked
            if len(part.X) > MAX_ROWS_OF_CUBIC and ":" in name:
                models = [model for model in models if model not in ("GPC", "SVC")]
            for model in models:
                rows.append(measured(name, split, model, part, MODELS[model]))
                line = "{:<14}{:>3}  {:<21} log loss {:.3f}  accuracy {:.3f}  ece {:.3f}  {:.1f} s"
                print(line.format(*rows[-1]), flush=True)
                if options.output:
                    options.output.write_text(json.dumps([row._asdict() for row in rows], indent=1))


if __name__ == "__main__":
    main()

"""Boosted trees with uncertainty, as rivals of `learn`, in an environment of their own.

    pip install numpy scikit-learn catboost ngboost
    GPFLOW_GVI_DATA=... python -m benchmarks.trees --output trees.json
    GPFLOW_GVI_DATA=... python -m benchmarks.trees yacht energy --splits 5 6 --output trees.json

The rows that it writes are those of `regression.py`, which reads them by `--beside`. A library that
is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if __package__:
    from .data import SPLITS, Split, add_argument, add_quick, load_split, standardised
else:
    from data import SPLITS, Split, add_argument, add_quick, load_split, standardised

Prediction = tuple[np.ndarray, ...]
"""Mean and variance of y, and where its law is not Gaussian the log densities."""

NUM_FOLDS = 5


class Row(NamedTuple):
    """One model on one split, in the units that it was given."""

    data: str
    split: int
    model: str
    nll: float
    crps: float
    rmse: float
    coverage: float
    seconds: float
    """Of processor time."""
    nll_of_moments: float = math.nan
    """That of the Gaussian with the same mean and variance, where another law is predicted."""


def measured(
    data: str, split: int, model: str, part: Split, fit: Callable[[Split, int], Prediction]
) -> Row:
    """Return the figures of a model's predictions of y at the rows for testing.

    All but the NLL are those of the Gaussian with the predicted mean and variance.
    """
    start = time.process_time()
    mean, variance, *log_density = (np.asarray(value).reshape(-1) for value in fit(part, split))
    seconds = time.process_time() - start
    y, sigma = part.Y_test[:, 0], np.sqrt(variance)
    z = (y - mean) / sigma
    pdf = np.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
    cdf = 0.5 * (1.0 + np.array([math.erf(value / math.sqrt(2.0)) for value in z]))
    crps = sigma * (z * (2.0 * cdf - 1.0) + 2.0 * pdf - 1.0 / math.sqrt(math.pi))
    nll = 0.5 * np.log(2.0 * np.pi * variance) + 0.5 * z**2
    rmse = float(np.sqrt(np.mean(np.square(y - mean))))
    inside = float(np.mean(np.abs(z) < 1.959964))
    of_moments = float(nll.mean())
    of_law = -float(np.mean(log_density)) if log_density else of_moments
    figures = of_law, float(crps.mean()), rmse, inside, seconds, of_moments
    return Row(data, split, model, *figures)


def out_of_fold(estimator: Callable[[], Any], part: Split, seed: int) -> Prediction:
    """The average of five fits, with the variance of their errors out of fold."""
    from sklearn.model_selection import KFold

    errors, mean = np.empty(len(part.X)), np.zeros(len(part.X_test))
    for seen, unseen in KFold(NUM_FOLDS, shuffle=True, random_state=seed).split(part.X):
        model = estimator().fit(part.X[seen], part.Y[seen, 0])
        errors[unseen] = part.Y[unseen, 0] - model.predict(part.X[unseen])
        mean += model.predict(part.X_test) / NUM_FOLDS
    return mean, np.full(mean.shape, np.mean(np.square(errors)))


def hist_gradient_boosting(part: Split, seed: int) -> Prediction:
    """Five-fold HistGradientBoosting."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return out_of_fold(lambda: HistGradientBoostingRegressor(random_state=seed), part, seed)


def catboost_folds(part: Split, seed: int) -> Prediction:
    """Five-fold CatBoost."""
    from catboost import CatBoostRegressor

    options = {"random_seed": seed, "verbose": False, "thread_count": 1}
    return out_of_fold(lambda: CatBoostRegressor(**options, allow_writing_files=False), part, seed)


def catboost_uncertainty(part: Split, seed: int) -> Prediction:
    """CatBoost with a variance of its own, stopped by a tenth of the rows."""
    from catboost import CatBoostRegressor

    order = np.random.default_rng(seed).permutation(len(part.X))
    held_out, seen = np.split(order, [len(order) // 10])
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        iterations=1000,
        random_seed=seed,
        verbose=False,
        thread_count=1,
        allow_writing_files=False,
    ).fit(
        part.X[seen],
        part.Y[seen, 0],
        eval_set=(part.X[held_out], part.Y[held_out, 0]),
        early_stopping_rounds=50,
    )
    predicted = model.predict(part.X_test)
    return predicted[:, 0], predicted[:, 1]


def ngboost(part: Split, seed: int) -> Prediction:
    """NGBoost with normal predictions, stopped by a tenth of the rows."""
    from ngboost import NGBRegressor

    model = NGBRegressor(n_estimators=1000, verbose=False, random_state=seed)
    order = np.random.default_rng(seed).permutation(len(part.X))
    held_out, seen = np.split(order, [len(order) // 10])
    unseen = {"X_val": part.X[held_out], "Y_val": part.Y[held_out, 0]}
    model.fit(part.X[seen], part.Y[seen, 0], **unseen, early_stopping_rounds=50)
    predicted = model.pred_dist(part.X_test).params
    return predicted["loc"], np.square(predicted["scale"])


LIBRARIES = {"CatBoost": "catboost", "LightGBM": "lightgbm", "NGBoost": "ngboost"}
"""What models need that have these words in their names."""

MODELS: dict[str, Callable[[Split, int], Prediction]] = {
    "HistGB, 5 folds": hist_gradient_boosting,
    "CatBoost, 5 folds": catboost_folds,
    "CatBoost": catboost_uncertainty,
    "NGBoost": ngboost,
}


def main() -> None:
    """Run the models and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, MODELS)
    options = parser.parse_args()
    run(options, MODELS)


def add_arguments(parser: argparse.ArgumentParser, models: Iterable[str]) -> None:
    """Add the options that choose data, splits and models.

    :param models: the names of those that are run by default.
    """
    parser.add_argument("data", nargs="*", default=list(SPLITS), help="UCI sets or tables; all")
    parser.add_argument("--splits", type=int, nargs="+", help="by default those of `data.SPLITS`")
    parser.add_argument("--models", nargs="*", default=list(models), help="by default the usual")
    parser.add_argument("--output", type=Path, help="a JSON file for the rows")
    add_argument(parser)
    add_quick(parser)


def run(
    options: argparse.Namespace,
    models: dict[str, Callable[[Split, int], Prediction]],
    prepare: Callable[[Split], Split] = standardised,
) -> list[Row]:
    """Run models on all splits, print their figures and write them as JSON."""
    if unknown := set(options.models) - set(models):
        raise SystemExit(f"{', '.join(sorted(unknown))}: the models are {', '.join(models)}")
    rows: list[Row] = []
    names = installed(options.models)
    if options.output:
        options.output.write_text("[]")
    for name in options.data[: 1 if options.quick else None]:
        for split in (options.splits or SPLITS.get(name, range(5)))[: 1 if options.quick else None]:
            part = prepare(load_split(Path(options.data_dir or "."), name, split))
            if options.quick:
                part = Split(*(value[:60] for value in part))
            for model in names:
                rows.append(measured(name, split, model, part, models[model]))
                line = "{:<14}{:>3}  {:<18} nll {:7.3f}  crps {:.4f}  rmse {:.4f}  {:.2f}  {:.1f} s"
                print(line.format(*rows[-1]), flush=True)
                if options.output:
                    options.output.write_text(json.dumps([row._asdict() for row in rows], indent=1))
    return rows


def installed(models: Iterable[str]) -> list[str]:
    """Return the models whose library can be imported, and name the others."""
    found = []
    for model in models:
        needed = [library for part, library in LIBRARIES.items() if part in model]
        if all(importlib.util.find_spec(library) for library in needed):
            found.append(model)
        else:
            print(f"{model}: {', '.join(needed)} is not installed, left out", flush=True)
    return found


if __name__ == "__main__":
    main()

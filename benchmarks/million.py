"""Accuracy, time and memory of `learn` with up to a million rows, beside boosted trees.

    python -m benchmarks.million
    python -m benchmarks.million --rows 10000 --features 20 --models learn "HistGB, 5 folds"

Rows are made up: a function of eight features with interactions, an oblique step and noise that
varies; further features say nothing. They are written as Parquet, from which `learn` reads them by
`ParquetRows`, with D features. Each model is fitted in a process of its own and predicts 20,000
other rows: the negative log density and the CRPS, in the units of y, the seconds by the wall and of
processor time, and the peak of the memory of the process. "learn, one kernel" is around trees and a
network, which two more processes fit; their time and memory are not in these figures. The last row
is the law that the rows were drawn from. Libraries that are not installed are left out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from joblib.externals.loky import get_reusable_executor

if __package__:
    from . import timing, trees
    from .data import Split, add_quick
    from .timing import Row
else:
    import timing
    import trees
    from data import Split, add_quick
    from timing import Row

NUM_TEST = 20_000
LEARN, AROUND, TRUTH = "learn", "learn, one kernel", "the true law"
MODELS = [LEARN, AROUND, "HistGB, 5 folds", "LightGBM, 5 folds", "CatBoost"]
THREADS = 2


def law(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of y at rows: [N] each."""
    mean = np.sin(4.0 * np.pi * X[:, 0] * X[:, 1]) + np.cos(3.0 * np.pi * (X[:, 2] - X[:, 3]))
    mean += np.where(X[:, 5] > X[:, 6], 1.5, 0.0) * X[:, 4] + X[:, 7]
    return mean, 0.2 * (1.0 + 2.0 * X[:, 0] * (X[:, 7] > 0.5))


def rows(N: int, D: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X in the unit cube and y: [N, D] and [N]."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(N, D))
    mean, sd = law(X)
    return X, mean + sd * rng.normal(size=N)


def write(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Write rows as Parquet, with the columns x0, ..., y, in groups of 100,000."""
    import pyarrow
    from pyarrow import parquet

    columns = {f"x{d}": column for d, column in enumerate(X.T)}
    parquet.write_table(pyarrow.table({**columns, "y": y}), path, row_group_size=100_000)


def of_normal(mean: np.ndarray, variance: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return the negative log density and the CRPS of y under normal laws."""
    from scipy.stats import norm

    sd = np.sqrt(variance)
    z = (y - mean) / sd
    crps = sd * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi))
    return -float(np.mean(norm.logpdf(z) - np.log(sd))), float(np.mean(crps))


def seconds(start: tuple[float, float]) -> dict[str, float]:
    """Return the seconds since a start, by the wall and of processor time of all threads."""
    wall, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    return {"seconds": wall, "of processor time": processor}


def lightgbm_folds(part: Split, seed: int) -> trees.Prediction:
    """Five-fold LightGBM with 500 trees of 63 leaves."""
    from lightgbm import LGBMRegressor

    options = {"n_estimators": 500, "num_leaves": 63, "n_jobs": THREADS, "verbose": -1}
    return trees.out_of_fold(lambda: LGBMRegressor(random_state=seed, **options), part, seed)


def predictors(N: int) -> list[Any]:
    """Return trees and a network."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    trees = HistGradientBoostingRegressor(
        max_iter=200, max_leaf_nodes=63, early_stopping=True, random_state=0
    )
    network = MLPRegressor(
        hidden_layer_sizes=(100, 100),
        learning_rate_init=3e-3,
        batch_size=min(1000, N // 20),
        max_iter=int(np.clip(5_000_000 // N, 5, 100)),
        early_stopping=True,
        random_state=0,
    )
    return [trees, make_pipeline(StandardScaler(), network)]


def of_learn(model: str, path: Path, test: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Return the figures of `learn`, as it is or of one kernel around trees and a network."""
    import gpflow_gvi as gvi

    options: dict[str, Any] = {}
    if model == AROUND:
        with np.load(path.with_suffix(".npz")) as arrays:
            N = len(arrays["y"])
        options = {"effort": "fast", "noise": "auto", "predictor": predictors(N)}
        options["n_jobs"] = THREADS
    start = time.perf_counter(), time.process_time()
    learned = gvi.learn(gvi.ParquetRows(path, "y"), verbose=1, **options)
    took = seconds(start)
    X, y = test
    nll = -float(np.mean(learned.predict_log_density((X, y[:, None]))))
    crps = float(np.mean(learned.predict_law(X).crps(y[:, None])))
    return {"NLL": nll, "CRPS": crps, **took}


def of_rival(model: str, path: Path, test: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Return the figures of a rival, whose predictions are Gaussian."""
    with np.load(path.with_suffix(".npz")) as arrays:
        X, y = arrays["X"], arrays["y"]
    part = Split(X, y[:, None], test[0], test[1][:, None])
    fit = {**trees.MODELS, "LightGBM, 5 folds": lightgbm_folds}[model]
    start = time.perf_counter(), time.process_time()
    mean, variance = fit(part, 0)
    took = seconds(start)
    nll, crps = of_normal(mean, variance, test[1])
    return {"NLL": nll, "CRPS": crps, **took}


def figures(model: str, path: Path, test: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Return the figures of a model, and the peak of the memory of this process."""
    of_package = model in (LEARN, AROUND)
    found = of_learn(model, path, test) if of_package else of_rival(model, path, test)
    get_reusable_executor().shutdown()  # or the end of this process waits for them, for minutes
    return {**found, "MiB of the process": timing.peak_memory()}


def measured(N: int, test: tuple[np.ndarray, np.ndarray], models: list[str]) -> list[Row]:
    """Return the figures of models fitted to N rows, for others."""
    D = test[0].shape[1]
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        X, y = rows(N, D, seed=0)
        if {LEARN, AROUND} & set(models):
            write(path, X, y)
        np.savez(path.with_suffix(".npz"), X=X, y=y)
        del X, y
        for model in models:
            # Peaks of memory are those of a process.
            spawned = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=spawned) as pool:
                row: dict[str, Any] = pool.submit(figures, model, path, test).result()
            found.append({"D": D, "N": N, "model": model, **row})
            print(found[-1], flush=True)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--features", type=int, default=8, help="D, eight or more")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    add_quick(parser)
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        os.environ.setdefault(name, str(THREADS))
    sizes = [400] if options.quick else options.rows
    models = trees.installed(options.models)
    D = options.features
    X, y = rows(500 if options.quick else NUM_TEST, D, seed=1)
    found = [row for N in sizes for row in measured(N, (X, y), models)]
    mean, sd = law(X)
    nll, crps = of_normal(mean, sd**2, y)
    unknown = ("seconds", "of processor time", "MiB of the process")
    nothing = dict.fromkeys(unknown, float("nan"))
    found.append({"D": D, "N": 0, "model": TRUTH, "NLL": nll, "CRPS": crps, **nothing})
    print(timing.titled("A million rows", found))


if __name__ == "__main__":
    main()

"""The papers' tables: GWI and PGVI on the UCI sets, in original units, beside what was published.

    GPFLOW_GVI_DATA=... python -m benchmarks.papers --output papers.json
    GPFLOW_GVI_DATA=... python -m benchmarks.papers boston --splits 0 1 2

All have the same rows of the literature's splits. P is a posterior with an ARD squared exponential,
untrained but tempered; Q has a network of two layers of 50 as its whole mean, and is trained for
`EPOCHS` against that P. With "recipe" P is that of `learn(data, mean=network, model=...)`, with the
tails of held-out rows, and with "added" the network is added to its mean, as `learn(data,
model=...)` has it. The network alone is trained by Keras for as long. `learn` has its defaults,
which train no Q. Sets that are not here are read from the user's own copy:
`uci_NAME.npz` with x, y, and for each split train_idx and test_idx, which

    python -m benchmarks.papers boston --from FOLDER

writes from the text files of the literature: FOLDER/data.txt, index_features.txt, index_target.txt,
and index_train_0.txt, index_test_0.txt, and so on (Hernández-Lobato and Adams 2015, Gal 2016).
"""

from __future__ import annotations

import argparse
import functools
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import keras
import numpy as np

import gpflow_gvi as gvi

if __package__:
    from .data import OF_USERS, UCI, Split
    from .trees import Prediction, Row, add_arguments, run
else:
    from data import OF_USERS, UCI, Split
    from trees import Prediction, Row, add_arguments, run

EPOCHS = 100

PUBLISHED: dict[str, dict[str, float]] = {
    "boston": {"GWI-net": 2.27, "best": 2.27},
    "concrete": {"GWI-net": 2.64, "best": 2.21},
    "energy": {"best": 0.15},
    "kin8nm": {"best": -1.284},
    "naval": {"GWI-net": -6.76, "best": -7.33},
    "power": {"best": 2.28},
    "protein": {"best": 1.73},
    "wine": {"GWI-net": 0.76, "best": 0.76},
    "yacht": {"best": -0.73},
}
"""NLL in original units: of GWI-net (Wild, Hu and Sejdinovic 2022), at second hand, and the best of
any method; that of wine is the best of those without spikes on the six values of y."""


def network() -> Any:
    """Two layers of 50 tanh units."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.layers.Dense(50, "tanh"), keras.layers.Dense(50, "tanh"), keras.layers.Dense(1)]
    )


def predicted(part: Split, **options: Any) -> Prediction:
    """Moments and log densities of y by `learn` with these options."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learned = gvi.learn((part.X, part.Y), **options)
    log_density = learned.predict_log_density((part.X_test, part.Y_test))
    return (*learned.predict_y(part.X_test), log_density)


def default(part: Split, seed: int) -> Prediction:
    """`learn` with its defaults."""
    return predicted(part, seed=seed)


def untrained(part: Split, seed: int) -> Prediction:
    """P alone."""
    return predicted(part, kernel=_ard(part), seed=seed)


def trained(kind: type[gvi.models.GVI], part: Split, seed: int) -> Prediction:
    """Q with a network as its mean, trained against P."""
    options = {"mean": network(), "kernel": _ard(part), "model": kind, "epochs": EPOCHS}
    return predicted(part, seed=seed, **options)


def by_recipe(kind: type[gvi.models.GVI], part: Split, seed: int) -> Prediction:
    """The same with a P by the recipe of `learn`, and tails."""
    return predicted(part, mean=network(), model=kind, epochs=EPOCHS, seed=seed)


def added(part: Split, seed: int) -> Prediction:
    """Q as `learn` has it by default: a network added to the mean of P, by the recipe."""
    return predicted(part, model=gvi.models.PGVI, epochs=EPOCHS, seed=seed)


def network_alone(part: Split, seed: int) -> Prediction:
    """The same network, trained by Keras for as long, with the variance of its held-out errors."""
    X, Y, X_test = (
        _standardised(value, by)
        for value, by in ((part.X, part.X), (part.Y, part.Y), (part.X_test, part.X))
    )
    order = np.random.default_rng(seed).permutation(len(X))
    held_out, seen = np.split(order, [len(order) // 10])
    alone = network()
    alone.compile("adam", "mse")
    stop = keras.callbacks.EarlyStopping(patience=EPOCHS, restore_best_weights=True)
    validation = X[held_out], Y[held_out]
    alone.fit(
        X[seen], Y[seen], epochs=EPOCHS, validation_data=validation, callbacks=[stop], verbose=0
    )
    variance = np.mean(np.square(Y[held_out] - alone.predict(X[held_out], verbose=0)))
    scale, mean = (
        np.std(part.Y),
        np.mean(part.Y) + np.std(part.Y) * alone.predict(X_test, verbose=0),
    )
    return mean, np.full(mean.shape, scale**2 * variance)


def _standardised(value: np.ndarray, by: np.ndarray) -> np.ndarray:
    scale = np.std(by, axis=0)
    return (value - np.mean(by, axis=0)) / np.where(scale > 0.0, scale, 1.0)


def _ard(part: Split) -> gpflow.kernels.Kernel:
    D = part.X.shape[1]
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(D, np.sqrt(D)))


MODELS: dict[str, Callable[[Split, int], Prediction]] = {
    "learn": default,
    "P": untrained,
    "GWI": functools.partial(trained, gvi.models.GWI),
    "PGVI": functools.partial(trained, gvi.models.PGVI),
    "GWI, recipe": functools.partial(by_recipe, gvi.models.GWI),
    "PGVI, recipe": functools.partial(by_recipe, gvi.models.PGVI),
    "PGVI, added": added,
    "network": network_alone,
}


def table(rows: Sequence[Row], figure: str) -> str:
    """Averages over splits with their standard errors, as Markdown, a row for each data set."""
    published = ["GWI-net", "best"] if figure == "nll" else []
    models = list(dict.fromkeys(row.model for row in rows))
    head = ["data", "splits", *models, *(f"{name}, published" for name in published)]
    lines = [f"| {' | '.join(head)} |", f"| --- |{' --: |' * (len(head) - 1)}"]
    for data in dict.fromkeys(row.data for row in rows):
        cells = []
        for model in models:
            values = [getattr(r, figure) for r in rows if (r.data, r.model) == (data, model)]
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cells.append(f"{np.mean(values):.3g} ± {error:.2g}")
        known = PUBLISHED.get(data, {})
        cells += [f"{known[name]}" if name in known else "" for name in published]
        splits = len({row.split for row in rows if row.data == data})
        lines.append(f"| {data} | {splits} | {' | '.join(cells)} |")
    return "\n".join(lines)


def convert(source: Path, target: Path) -> None:
    """Write the literature's text files of a set in the format of the others."""
    values = np.loadtxt(source / "data.txt")
    columns = [np.loadtxt(source / f"index_{of}.txt", dtype=int) for of in ("features", "target")]
    splits = sorted(source.glob("index_train_[0-9]*.txt"), key=lambda p: int(p.stem.split("_")[2]))
    indices: dict[str, Any] = {}
    for part in ("train", "test"):
        found = [np.loadtxt(f"{path}".replace("index_train", f"index_{part}")) for path in splits]
        rows = np.empty(len(found), object)
        rows[:] = [each.astype(int) for each in found]
        same = len({len(each) for each in found}) == 1
        indices[f"{part}_idx"] = np.stack(list(rows)) if same else rows
    np.savez(target, x=values[:, columns[0]], y=values[:, columns[1]].reshape(-1, 1), **indices)
    print(f"{target}: {len(values)} rows, {len(splits)} splits")


def main() -> None:
    """Run the models, and print a table for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, MODELS)
    parser.add_argument("--from", type=Path, dest="source", help="text files to convert instead")
    options = parser.parse_args()
    folder = Path(options.data_dir or ".")
    if options.source:
        return convert(options.source, folder / f"uci_{options.data[0]}.npz")
    asked = [name for name in options.data if name in (*UCI, *OF_USERS)]
    options.data = [name for name in asked if (folder / f"uci_{name}.npz").exists()]
    rows = run(options, MODELS, lambda part: part)
    for figure in ("nll", "rmse", "crps"):
        print(f"\n{figure}\n\n{table(rows, figure)}")


if __name__ == "__main__":
    main()

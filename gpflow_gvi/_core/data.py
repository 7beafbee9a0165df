"""Data of users: validated and converted once, where they enter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from . import labels
from .errors import NumericsWarning

MIN_IMAGE_COLUMNS = 36
"""Rows of fewer whole numbers are hardly images."""


@dataclass(frozen=True)
class Data:
    """Inputs and observations that a model can take: made by `Data.of`.

    Whoever receives one need not validate it again.
    """

    X: tf.Tensor
    """[N, D...], of the default float."""

    Y: tf.Tensor
    """[N, P], of the type that the likelihood takes."""

    num_classes: int | None = None
    """J, if the observations are labels 0, ..., J - 1; otherwise None."""

    @classmethod
    def of(
        cls, data: Any, likelihood: Likelihood | None = None, *, names: tuple[str, str] = ("X", "Y")
    ) -> Data:
        """Return arrays (X, Y) of any type of number as data, or raise saying what is wrong.

        :param data: (X, Y), with a vector Y taken as one column; or data, which are returned.
        :param likelihood: says whether Y are labels, for which other rules hold than for numbers.
        :param names: what to call X and Y in messages.
        """
        num_classes = labels.num_classes(likelihood)
        if isinstance(data, Data) and data.num_classes == num_classes:
            return data
        X, Y = data
        X = inputs(names[0], X)
        if num_classes is None or tf.is_symbolic_tensor(Y):
            Y = inputs(names[1], _column(Y))
        elif num_classes < 2:
            raise ValueError(
                f"likelihood {type(likelihood).__name__} has {num_classes} class; there must be 2."
            )
        else:
            Y = labels.observed(likelihood, labels.validated(names[1], Y, num_classes))
        if X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"{names[0]} has {X.shape[0]} rows and {names[1]} has {Y.shape[0]}; they must be "
                "the same in number."
            )
        return cls(X, Y, num_classes)

    def __iter__(self) -> Iterator[tf.Tensor]:
        """Yield X and Y, as the pair that GPflow calls data."""
        return iter((self.X, self.Y))

    @property
    def num_rows(self) -> int:
        """N."""
        return int(self.X.shape[0])

    def split(self, fraction: float) -> tuple[Data, Data]:
        """Return all but the last rows, and the last, as Keras's `validation_split` does."""
        first = math.floor(self.num_rows * (1.0 - fraction))
        if not 0.0 < fraction < 1.0 or not 0 < first < self.num_rows:
            raise ValueError(
                f"validation_split is {fraction}; it must lie between 0 and 1 and leave rows of "
                f"{self.num_rows} on both sides."
            )
        parts = (slice(first), slice(first, None))
        seen, unseen = (Data(self.X[rows], self.Y[rows], self.num_classes) for rows in parts)
        return seen, unseen

    def warn_of_missing_classes(self) -> None:
        """Warn of classes of which training data have no example."""
        if self.num_classes is None:
            return
        present = set(np.unique(np.asarray(self.Y)).astype(int).tolist())
        missing = sorted(set(range(self.num_classes)) - present)
        if missing:
            warnings.warn(
                f"Y has no example of {'class' if len(missing) == 1 else 'classes'} "
                f"{', '.join(map(str, missing))} of {self.num_classes}; the model cannot learn "
                "what they look like, only that they are not the others.",
                NumericsWarning,
                stacklevel=3,
            )


def inputs(name: str, value: Any) -> tf.Tensor:
    """Return rows of finite numbers as a tensor of the default float: [N, D...]."""
    if tf.is_symbolic_tensor(value):
        return value
    value = _known(value)
    array = np.asarray(value)
    numbers = _converted(name, array)
    if numbers.ndim < 2:
        raise ValueError(
            f"{name} has shape {numbers.shape}, but rows are data points: it must have rank 2 "
            f"([N, D]); {name}[:, None] makes a column of it."
        )
    if len(numbers) == 0:
        raise ValueError(f"{name} has shape {numbers.shape}: there are no data points.")
    if not np.all(np.isfinite(numbers)):
        rows = np.flatnonzero(~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1))
        raise ValueError(
            f"{name} has NaN or infinite values in {len(rows)} of {len(numbers)} rows (the first "
            f"is row {rows[0]}). Drop those rows or fill them in before fitting."
        )
    _warn_of_unscaled_images(name, numbers)
    return tf.convert_to_tensor(value if numbers is array else numbers)


def _converted(name: str, array: AnyNDArray) -> AnyNDArray:
    """Return numbers in the default float, or the array itself if that is what it has."""
    wanted: np.dtype[Any] = np.dtype(default_float())
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name} has dtype {array.dtype}, which is not converted to the model's {wanted.name}. "
            f"Pass real numbers, for example {name}.astype('{wanted.name}')."
        )
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is reported
        numbers: AnyNDArray = array.astype(wanted)
    if array.dtype.kind in "iu" and not np.array_equal(numbers.astype(array.dtype), array):
        raise TypeError(
            f"{name} has dtype {array.dtype} and whole numbers that are too large for the model's "
            f"{wanted.name}: neighbours would become equal. Subtract an offset first."
        )
    return numbers


def _known(value: Any) -> Any:
    """Return a tensor or an array."""
    if isinstance(value, tf.Variable | Parameter):
        return tf.convert_to_tensor(value)
    return value if isinstance(value, tf.Tensor) else np.asarray(value)


def _column(Y: Any) -> Any:
    """Return a vector as one column, and anything else as it is."""
    Y = _known(Y)
    return Y[:, None] if len(Y.shape) == 1 else Y


def _warn_of_unscaled_images(name: str, X: AnyNDArray) -> None:
    """Warn of images whose pixels are whole numbers up to 255, as in files; rows may be images."""
    if math.prod(X.shape[1:]) < MIN_IMAGE_COLUMNS or not 64 <= np.max(X) <= 255 or np.min(X) < 0:
        return
    if np.all(X[:100] == np.round(X[:100])):
        warnings.warn(
            f"{name} looks like images that were not scaled: {X.shape[1:]} whole numbers in each "
            f"row, the largest {np.max(X):g}. Networks and lengthscales start where inputs are "
            f"about 1 in size: pass {name} / 255.",
            NumericsWarning,
            stacklevel=4,
        )

"""Data of users: validated and converted once, where they enter."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Parameter
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from ..errors import NumericsWarning
from . import checks, domains, labels
from .threads import require_threads

MIN_IMAGE_COLUMNS = 36
"""Rows of fewer whole numbers are hardly images."""


def as_dataset(data: Any) -> Any:
    """Return a PyDataset, which makes batches anew in each pass, as a Dataset; else the data."""
    if not isinstance(data, keras.utils.PyDataset):
        return data

    def batches() -> Iterator[Any]:
        yield from (data[i] for i in range(len(data)))
        data.on_epoch_end()

    arrays = tf.nest.map_structure(np.asarray, data[0])
    specs = tf.nest.map_structure(
        lambda each: tf.TensorSpec([None, *each.shape[1:]], each.dtype), arrays
    )
    dataset = tf.data.Dataset.from_generator(batches, output_signature=specs)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(data)))


@dataclass(frozen=True)
class Data:
    """Inputs and observations that a model can take: validated, by `Data.of`."""

    X: tf.Tensor
    """[N, D...], of the default float."""

    Y: tf.Tensor
    """[N, P], of the type that the likelihood takes."""

    num_classes: int | None = None
    """J, if the observations are labels 0, ..., J - 1; otherwise None."""

    @classmethod
    def of(
        cls,
        data: Any,
        likelihood: Likelihood | None = None,
        *,
        name: str = "data",
        names: tuple[str, str] = ("X", "Y"),
    ) -> Data:
        """Return arrays (X, Y) of any type of number as data, or raise saying what is wrong.

        :param data: (X, Y), with a vector Y taken as one column; or data, which are returned.
        :param likelihood: says whether Y are labels, for which other rules hold than for numbers.
        :param name: what to call the data in messages.
        :param names: what to call X and Y there.
        """
        num_classes = labels.num_classes(likelihood)
        if isinstance(data, Data) and data.num_classes == num_classes:
            return data
        if not isinstance(data, Data | tuple | list) or len(data) != 2:
            length = f" of length {len(data)}" if isinstance(data, tuple | list) else ""
            raise ValueError(
                f"{name} is a {type(data).__name__}{length}; it must be the pair of arrays (X, Y)."
                " A tf.data.Dataset is taken as data by learn, and by fit and evaluate of a model."
            )
        X, Y = data
        X = inputs(names[0], X)
        if num_classes is None or tf.is_symbolic_tensor(Y):
            Y = observations(names[1], Y)
            if not tf.is_symbolic_tensor(Y):
                domains.require(likelihood, names[1], np.asarray(Y), np.arange(len(Y)))
        elif num_classes < 2:
            raise ValueError(
                f"likelihood {type(likelihood).__name__} has {num_classes} class; there must be 2."
            )
        else:
            Y = labels.observed(likelihood, labels.required(names[1], Y, likelihood))
        if None not in (X.shape[0], Y.shape[0]) and X.shape[0] != Y.shape[0]:
            raise ValueError(
                f"{names[0]} has {X.shape[0]} rows and {names[1]} has {Y.shape[0]}; they must be "
                "the same in number."
            )
        return cls(X, Y, num_classes)

    def __len__(self) -> int:
        """Return 2, the number of items."""
        return 2

    def __iter__(self) -> Iterator[tf.Tensor]:
        """Yield X and Y, as the pair that GPflow calls data."""
        return iter((self.X, self.Y))

    @property
    def num_rows(self) -> int:
        """N."""
        return int(self.X.shape[0])

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


def observations(name: str, value: Any) -> tf.Tensor:
    """Return rows of finite numbers as `inputs` does, a vector as one column: [N, P]."""
    value = _known(name, value)
    value = value[:, None] if value.ndim == 1 else value
    if value.ndim is None:  # of a graph
        value = tf.ensure_shape(value, [None, None])
    if not tf.is_symbolic_tensor(value) and value.ndim > 2:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; observations must be [N] or [N, P], a column "
            f"for each output: {name}.reshape(len({name}), -1)."
        )
    return inputs(name, value)


def inputs(name: str, value: Any) -> tf.Tensor:
    """Return rows of finite numbers as a tensor of the default float: [N, D...].

    A tensor stays differentiable; one of a graph, whose values are not known, is returned as it is.
    """
    return as_tensor(finite_rows(name, value))


def finite_rows(name: str, value: Any) -> AnyNDArray | tf.Tensor:
    """Return the same, but an array as an array, of which more can be asked in little time."""
    require_threads()
    columns = getattr(value, "column_names", getattr(value, "columns", None))  # of a table
    value = _known(name, value)
    is_array = isinstance(value, np.ndarray)
    if not is_array and tf.is_symbolic_tensor(value):
        return value
    array = value if is_array else np.asarray(value)
    numbers = as_floats(name, array)
    if numbers.ndim < 2:
        raise ValueError(
            f"{name} has shape {numbers.shape}, but rows are data points: it must have rank 2 "
            f"([N, D]); {name}[:, None] makes a column of it."
        )
    if numbers.size == 0:
        what = "columns" if len(numbers) else "data points"
        raise ValueError(f"{name} has shape {numbers.shape}: there are no {what}.")
    most, flat = largest(numbers.dtype), numbers.ravel("K")  # mostly a view
    with np.errstate(over="ignore", invalid="ignore"):
        if not flat.dot(flat) <= most * most:  # nor does NaN compare
            bad = ~(np.abs(numbers) <= most)
            if bad.any():
                raise _not_finite(name, numbers, bad, columns)
    if is_array:
        return numbers
    return value if numbers is array else tf.cast(value, numbers.dtype)


def as_tensor(value: AnyNDArray | tf.Tensor) -> tf.Tensor:
    """Return a tensor; `tf.convert_to_tensor` takes longer to find out that an array is one."""
    return tf.constant(value) if isinstance(value, np.ndarray) else value


@functools.cache
def largest(dtype: Any) -> float:
    """Return the largest number that is taken: sums of 10,000 of its squares are finite.

    They are 0.81 of the largest finite number, so that no rounding on the way makes them infinite.
    """
    return 0.009 * math.sqrt(np.finfo(dtype).max)


def _not_finite(name: str, numbers: AnyNDArray, bad: AnyNDArray, columns: Any) -> ValueError:
    rows = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
    place = f"row {rows[0]}"
    if bad.ndim == 2 and bad.shape[1] > 1:
        column = int(np.argmax(bad[rows[0]]))
        place += f", column {column if columns is None else repr(columns[column])}"
    where = f"{len(rows)} of {len(bad)} rows (the first is {place})"
    if not np.all(np.isfinite(numbers)):
        has_missing = name == "Y" and bool(np.any(np.isnan(numbers)))
        ignore = " learn(..., missing='ignore') leaves out missing values." * has_missing
        return ValueError(
            f"{name} has NaN or infinite values in {where}. Drop those rows or fill them "
            f"in.{ignore}"
        )
    return ValueError(
        f"{name} has values in {where} of which the largest is {np.max(np.abs(numbers)):.3g}, too "
        f"large to be squared in {numbers.dtype.name}. Give it in another unit."
    )


_REMEDIES = {
    "M": "({0} - {0}.min()) / numpy.timedelta64(1, 'D')",
    "m": "{0} / numpy.timedelta64(1, 'D')",
    "c": "numpy.real({0})",
    "temporal": "{0}.to_physical()",
}
"""Real numbers in the place of values of a kind of dtype of NumPy, or of polars."""


def as_floats(name: str, array: AnyNDArray) -> AnyNDArray:
    """Return numbers in the default float, or the array itself if that is what it has."""
    wanted: np.dtype[Any] = np.dtype(default_float())
    if array.dtype == wanted:
        return array
    if array.dtype.kind not in "biuf":
        raise _no_floats(name, array.dtype, array.dtype.kind)
    with np.errstate(over="ignore"):  # numbers that are too large become infinite, and are reported
        numbers: AnyNDArray = array.astype(wanted)
    if array.dtype.kind in "iu" and not np.array_equal(numbers.astype(array.dtype), array):
        raise TypeError(
            f"{name} has dtype {array.dtype} and whole numbers that are too large for the model's "
            f"{wanted.name}: neighbours would become equal. Subtract an offset first."
        )
    return numbers


def _no_floats(name: str, dtype: Any, kind: str) -> TypeError:
    wanted = np.dtype(default_float()).name
    remedy = _REMEDIES.get(kind, "{0}.astype('{1}')").format(name, wanted)
    classes = f"; numpy.unique({name}, return_inverse=True) numbers names of classes"
    return TypeError(
        f"{name} has dtype {dtype}, which is not converted to the model's {wanted}. Pass real "
        f"numbers, for example {remedy}{classes if kind in ('U', 'S') else ''}."
    )


def require_real_columns(name: str, table: Any) -> None:
    """Raise if a column of a table is of dates, durations or complex numbers.

    Beside columns of numbers these make an array of objects, or none.
    """
    if not hasattr(table, "columns"):
        return
    for column, dtype in zip(table.columns, getattr(table, "dtypes", ()), strict=False):
        is_temporal = getattr(dtype, "is_temporal", bool)()  # of polars, which makes floats of them
        kind = "temporal" if is_temporal else getattr(dtype, "kind", None)
        if kind in ("m", "M", "c", "temporal"):
            raise _no_floats(f"{name}[{column!r}]", dtype, kind)


def _known(name: str, value: Any) -> Any:
    """Return a tensor or an array."""
    if isinstance(value, np.ndarray):
        return checks.array(name, value)
    require_real_columns(name, value)
    if isinstance(value, tf.Variable | Parameter):
        return tf.convert_to_tensor(value)
    return value if isinstance(value, tf.Tensor) else checks.array(name, value)


def warn_of_unscaled_images(name: str, X: AnyNDArray) -> None:
    """Warn of images whose pixels are whole numbers up to 255, as in files; rows may be images."""
    if math.prod(X.shape[1:]) < MIN_IMAGE_COLUMNS or not 64 <= np.max(X) <= 255 or np.min(X) < 0:
        return
    rows = X[:100].reshape(min(len(X), 100), -1)
    is_of_pixels = np.mean(np.max(rows, axis=0) >= 64) > 0.1  # few columns of codes reach so far
    if is_of_pixels and np.all(rows == np.round(rows)):
        warnings.warn(
            f"{name} looks like images that were not scaled: {X.shape[1:]} whole numbers in each "
            f"row, the largest {np.max(X):g}. Networks and lengthscales start where inputs are "
            f"about 1 in size: pass {name} / 255.",
            NumericsWarning,
            stacklevel=4,
        )

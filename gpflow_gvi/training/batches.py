"""The batches: rows of arrays in random order, or elements of a Dataset, for a compiled loop."""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from .._core import checks, labels
from .._core.data import Data, as_dataset, warn_of_unscaled_images
from ..errors import NumericsWarning

ALL = "all"
"""In place of the numbers of the rows of a batch, if it is all rows in their order."""


class Rows(NamedTuple):
    """Batches of the rows of X and Y, gathered within the graph."""

    X: tf.Tensor  # [N, D...]
    Y: tf.Tensor  # [N, P]

    numbers: tf.Tensor  # [steps, B]
    """The numbers of the rows of each batch; -1 fills up the last batch of a pass."""

    @property
    def _are_all(self) -> bool:
        return self.X.shape[0] == self.numbers.shape[1]

    @property
    def spec(self) -> tuple[Any, ...]:
        """The batch: of any number of rows only where the last one of a pass is smaller."""
        B = self.numbers.shape[1]
        size = None if self.X.shape[0] % B else B
        parts = (tf.TensorSpec([size, *p.shape[1:]], p.dtype) for p in (self.X, self.Y))
        return *parts, ALL if self._are_all else tf.TensorSpec([size], self.numbers.dtype)

    def batch(self, step: tf.Tensor) -> tuple[Any, ...]:
        """Return a batch by its number."""
        if self._are_all:
            return self.X, self.Y, ALL
        rows = self.numbers[step]
        if self.X.shape[0] % self.numbers.shape[1]:
            rows = rows[rows >= 0]
        return tf.gather(self.X, rows), tf.gather(self.Y, rows), rows


class Stream(NamedTuple):
    """Batches of an iterator, consumed within the graph."""

    iterator: tf.data.Iterator

    @property
    def spec(self) -> tuple[Any, ...]:
        """The batch, of rows that nobody knows before."""
        return *self.iterator.element_spec, None

    def batch(self, _: tf.Tensor) -> tuple[Any, ...]:
        """Return the next batch."""
        return *self.iterator.get_next(), None


class ArrayBatches:
    """Batches of arrays. The order of the rows in a pass depends on the seed and the pass alone.

    :param batch_size: None for all rows.
    :param seed: None to leave the rows as they are.
    :param steps_per_epoch: None for as many as a pass over the data has.
    """

    def __init__(
        self,
        data: Data,
        *,
        batch_size: int | None,
        seed: int | None,
        steps_per_epoch: int | None = None,
    ) -> None:
        self.data = data
        self.num_data = N = data.num_rows
        self.size = N if batch_size is None else min(batch_size, N)
        self.in_pass = -(-N // self.size)
        self.steps = self.in_pass if steps_per_epoch is None else steps_per_epoch
        self.seed = None if self.in_pass == 1 else seed  # all rows at once have no order
        self._order = functools.lru_cache(maxsize=2)(self._shuffled)
        self._next = 0

    def warn_of_other_number(self, num_data: Any) -> None:
        """Warn of a model that is made for another number of rows."""
        if int(num_data) != self.num_data:
            warnings.warn(
                f"data has {self.num_data} rows, but the model has num_data={int(num_data)}, with "
                "which its objective is scaled. Pass num_data=len(X) to the model, or all of the "
                "data to fit.",
                NumericsWarning,
                stacklevel=3,
            )

    def from_epoch(self, number: int) -> tf.data.Dataset:
        """Go on from an epoch; return for Keras a Dataset without an end."""
        self._next = number * self.steps
        return tf.data.Dataset.range(1).repeat()

    def next(self, _: Any, count: int, most: int) -> Rows:
        """Return the next batches, followed by others to make up the most there can be."""
        numbers = []
        for step in range(self._next, self._next + most):
            number, batch = divmod(step, self.in_pass)
            numbers.append(self._order(0 if self.seed is None else number)[batch])
        self._next += count
        return Rows(self.data.X, self.data.Y, tf.constant(np.stack(numbers)))

    def _shuffled(self, number: int) -> AnyNDArray:
        """Return the row numbers of the batches of a pass: [passes, B]."""
        rows = tf.range(self.num_data, dtype=tf.int64)
        if self.seed is not None:
            rows = tf.random.experimental.stateless_shuffle(rows, seed=[self.seed, number])
        missing = self.in_pass * self.size - self.num_data
        filled = np.pad(rows.numpy(), (0, missing), constant_values=-1)
        return filled.reshape(self.in_pass, self.size)


class DatasetBatches:
    """Batches that are the elements of a `tf.data.Dataset`, pass after pass.

    :param name: what to call the dataset in messages.
    :param steps_per_epoch: None for as many as a pass has, which are counted if not known.
    """

    def __init__(
        self, name: str, dataset: tf.data.Dataset, *, steps_per_epoch: int | None = None
    ) -> None:
        self.dataset = dataset
        steps = int(dataset.cardinality()) if steps_per_epoch is None else steps_per_epoch
        if steps == tf.data.INFINITE_CARDINALITY:
            raise ValueError(
                f"{name} is a Dataset without an end. Pass steps_per_epoch, or leave out .repeat()."
            )
        if steps == tf.data.UNKNOWN_CARDINALITY:
            steps = int(dataset.reduce(np.int64(0), lambda count, *_: count + 1))
        if steps == 0 or int(dataset.cardinality()) == 0:
            raise ValueError(f"{name} is a Dataset without any batches.")
        self.steps = steps

    def from_epoch(self, number: int) -> tf.data.Dataset:
        """Return for Keras a Dataset without an end, from an epoch on."""
        return self.dataset.repeat().skip(number * self.steps)

    def next(self, iterator: tf.data.Iterator, *_: int) -> Stream:
        """Return the iterator, which has the next batches."""
        return Stream(iterator)


Batches = ArrayBatches | DatasetBatches
"""Epochs of `steps` batches, without an end."""


def as_batches(
    name: str,
    data: Any,
    *,
    batch_size: int | None,
    seed: int | None = None,
    steps_per_epoch: int | None = None,
    likelihood: Likelihood | None = None,
) -> Batches:
    """Return arrays or a Dataset of either kind as batches, validated and in the model's precision.

    The likelihood says whether Y are labels, for which other rules hold than for numbers.
    """
    if batch_size is not None:
        checks.count("batch_size", batch_size)
    if steps_per_epoch is not None:
        checks.count("steps_per_epoch", steps_per_epoch)
    data = as_dataset(data)
    if isinstance(data, tf.data.Dataset):
        data = _converted(name, data, likelihood)
        return DatasetBatches(name, data, steps_per_epoch=steps_per_epoch)
    arrays = Data.of(data, likelihood, name=name, names=(f"{name}'s X", f"{name}'s Y"))
    warn_of_unscaled_images(f"{name}'s X", np.asarray(arrays.X))
    return ArrayBatches(arrays, batch_size=batch_size, seed=seed, steps_per_epoch=steps_per_epoch)


def _converted(
    name: str, dataset: tf.data.Dataset, likelihood: Likelihood | None
) -> tf.data.Dataset:
    """Return a Dataset of batches in the default float, in which vectors Y are columns."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise ValueError(
            f"{name} is a Dataset with the elements {spec}; each must be a batch (X, Y)."
        )
    for part, what in zip(spec, "XY", strict=True):
        if not (part.dtype.is_floating or part.dtype.is_integer or part.dtype.is_bool):
            raise TypeError(
                f"{what} of {name} has dtype {part.dtype.name}; the elements of the Dataset must "
                f"be real numbers, which are cast to {np.dtype(default_float()).name}."
            )
    rank_X, rank_Y = (part.shape.rank for part in spec)
    if (rank_X is not None and rank_X < 2) or rank_Y == 0:
        raise ValueError(
            f"X of {name} has shape {tuple(spec[0].shape)} in each element, but an element is a "
            "batch, of rank 2 ([B, D]) or more: call .batch(batch_size) on the Dataset."
        )
    of_labels = labels.are_labels(likelihood)

    def convert(X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        Y = Y[:, None] if rank_Y == 1 else Y
        return tf.cast(X, default_float()), Y if of_labels else tf.cast(Y, default_float())

    dtypes = {part.dtype for part in (spec[:1] if of_labels else spec)}
    if dtypes == {tf.as_dtype(default_float())} and rank_Y != 1:
        return dataset
    return dataset.map(convert)

"""The batches: rows of arrays in random order, or elements of a Dataset, for compiled loops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from .._core import checks, labels
from .._core.data import Data


class Rows(NamedTuple):
    """Batches of the rows of X and Y, cut out within the graph."""

    X: tf.Tensor  # [N, D...]
    Y: tf.Tensor  # [N, P]

    orders: tf.Tensor | None  # [passes, N]
    """The order of the rows in each pass over the data; None to leave them as they are."""

    size: int

    @property
    def spec(self) -> tuple[tf.TensorSpec, ...]:
        """The batch: of any number of rows only where the last one of a pass is smaller."""
        size = None if self.X.shape[0] % self.size else self.size
        return tuple(tf.TensorSpec([size, *p.shape[1:]], p.dtype) for p in (self.X, self.Y))

    def visit(self, index: tf.Tensor, function: Callable[..., Any], nothing: Any) -> Any:
        """Return the function of the batch with this index, which counts on from pass to pass."""
        N = self.X.shape[0]
        in_pass = -(-N // self.size)
        start = self.size * (index % in_pass)
        rows = slice(start, tf.minimum(start + self.size, N))
        if self.orders is None:
            batch = (self.X[rows], self.Y[rows])
        else:
            of_batch = self.orders[index // in_pass, rows]
            batch = (tf.gather(self.X, of_batch), tf.gather(self.Y, of_batch))
        known = zip(batch, self.spec, strict=True)
        return function(*(tf.ensure_shape(part, spec.shape) for part, spec in known))


class Stream(NamedTuple):
    """Batches of an iterator, consumed within the graph."""

    iterator: tf.data.Iterator

    @property
    def spec(self) -> tuple[tf.TensorSpec, ...]:
        """The batch."""
        return tuple(self.iterator.element_spec)

    def visit(self, index: tf.Tensor, function: Callable[..., Any], nothing: Any) -> Any:
        """Return the function of the next batch, or `nothing` after the last one."""
        element = self.iterator.get_next_as_optional()
        return tf.cond(element.has_value(), lambda: function(*element.get_value()), lambda: nothing)


class Chunk(NamedTuple):
    """The batches that one compiled call processes, from the index `first` of a source on."""

    source: Rows | Stream
    first: int
    steps: int


class ArrayBatches:
    """Batches of arrays. The order of the rows in a pass depends on the seed and the pass alone.

    :param data: the rows.
    :param batch_size: rows in a batch; None for all of them.
    :param seed: the seed of the order; None to leave the rows as they are.
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

    def epoch(self, number: int, max_steps: int) -> Iterator[Chunk]:
        """Yield the batches of an epoch in chunks of `max_steps` or fewer."""
        end = (number + 1) * self.steps
        for first in range(number * self.steps, end, max_steps):
            passes, index = divmod(first, self.in_pass)
            source = Rows(self.data.X, self.data.Y, self._orders(passes, max_steps), self.size)
            yield Chunk(source, index, min(max_steps, end - first))

    def _orders(self, first: int, max_steps: int) -> tf.Tensor | None:
        """Return the orders of as many passes as a chunk may touch: [passes, N]."""
        if self.seed is None:
            return None
        count = 1
        if self.steps != self.in_pass:  # a chunk may start with the last batch of a pass
            count += -(-(min(max_steps, self.steps) - 1) // self.in_pass)
        return tf.stack([self._order(passes) for passes in range(first, first + count)])

    def _shuffled(self, passes: int) -> tf.Tensor:
        rows = tf.range(self.num_data, dtype=tf.int64)
        return tf.random.experimental.stateless_shuffle(rows, seed=[self.seed, passes])


class DatasetBatches:
    """Batches that are the elements of a `tf.data.Dataset`.

    :param dataset: a dataset of pairs (X, Y), batched.
    :param steps_per_epoch: None for as many as the dataset has.
    """

    def __init__(self, dataset: tf.data.Dataset, *, steps_per_epoch: int | None = None) -> None:
        self.dataset = dataset if steps_per_epoch is None else dataset.repeat()
        self.endless = steps_per_epoch is not None
        known = int(dataset.cardinality())
        self.steps = steps_per_epoch if self.endless else known if known >= 0 else None
        self._iterator: Any = None
        self._started = 0

    def epoch(self, number: int, max_steps: int) -> Iterator[Chunk]:
        """Yield chunks until the epoch is full; without a known length, until the caller stops."""
        source = Stream(self._continued(number) if self.endless else self._anew(number))
        first = 0
        while self.steps is None or first < self.steps:
            count = max_steps if self.steps is None else min(max_steps, self.steps - first)
            yield Chunk(source, first, count)
            first += count

    def _continued(self, number: int) -> Any:
        if self._iterator is None:
            self._iterator = iter(self.dataset.skip(number * (self.steps or 0)))
        return self._iterator

    def _anew(self, number: int) -> Any:
        # A seeded shuffle differs from iterator to iterator: epoch n needs the n-th.
        while self._started <= number:
            iterator = iter(self.dataset)
            self._started += 1
        return iterator


Batches = ArrayBatches | DatasetBatches
"""What an epoch is made of: `epoch` yields it, and `steps` is the number of batches, if known."""


def as_batches(
    name: str,
    data: Any,
    *,
    batch_size: int | None,
    seed: int | None = None,
    steps_per_epoch: int | None = None,
    likelihood: Likelihood | None = None,
) -> Batches:
    """Return arrays or a Dataset as batches, validated and in the precision of the model.

    The likelihood says whether Y are labels, for which other rules hold than for numbers.
    """
    if batch_size is not None:
        checks.count("batch_size", batch_size)
    if steps_per_epoch is not None:
        checks.count("steps_per_epoch", steps_per_epoch)
    if isinstance(data, tf.data.Dataset):
        cardinality = int(data.cardinality())
        if cardinality == 0:
            raise ValueError(f"{name} is a Dataset without any batches.")
        if cardinality == tf.data.INFINITE_CARDINALITY and steps_per_epoch is None:
            raise ValueError(
                f"{name} is a Dataset without an end. Pass steps_per_epoch, or leave out .repeat()."
            )
        return DatasetBatches(_converted(name, data, likelihood), steps_per_epoch=steps_per_epoch)
    return ArrayBatches(
        as_data(name, data, likelihood),
        batch_size=batch_size,
        seed=seed,
        steps_per_epoch=steps_per_epoch,
    )


def as_data(name: str, data: Any, likelihood: Likelihood | None) -> Data:
    """Return arrays as data, or raise naming the argument that they are."""
    return Data.of(data, likelihood, name=name, names=(f"{name}'s X", f"{name}'s Y"))


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

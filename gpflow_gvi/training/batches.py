"""The batches: rows of arrays in random order, or elements of a Dataset, for compiled loops."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from .. import checks, labels


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
    """What one compiled call works off: batches of a source, from the index `first` on."""

    source: Rows | Stream
    first: int
    steps: int


class Batches(abc.ABC):
    """What an epoch is made of, as a function of the number of the epoch."""

    steps: int | None
    """The number of batches in an epoch, if it is known before the first one."""

    @abc.abstractmethod
    def epoch(self, number: int, most: int) -> Iterator[Chunk]:
        """Yield the batches of an epoch in chunks of at most `most`."""


class ArrayBatches(Batches):
    """Batches of arrays. The order of the rows in a pass depends on the seed and the pass alone.

    :param data: (X, Y).
    :param batch_size: rows in a batch; None for all of them.
    :param seed: of the order; None to leave the rows as they are.
    :param steps_per_epoch: None for as many as a pass over the data has.
    """

    def __init__(
        self,
        data: tuple[tf.Tensor, tf.Tensor],
        *,
        batch_size: int | None,
        seed: int | None,
        steps_per_epoch: int | None = None,
    ) -> None:
        self.data = data
        self.num_data = int(data[0].shape[0])
        self.size = self.num_data if batch_size is None else min(batch_size, self.num_data)
        self.in_pass = -(-self.num_data // self.size)
        self.steps: int = self.in_pass if steps_per_epoch is None else steps_per_epoch
        self.seed = None if self.in_pass == 1 else seed  # all rows at once have no order
        self._order = functools.lru_cache(maxsize=2)(self._shuffled)

    def epoch(self, number: int, most: int) -> Iterator[Chunk]:
        """Yield the batches of an epoch in chunks of at most `most`."""
        end = (number + 1) * self.steps
        for first in range(number * self.steps, end, most):
            passes, index = divmod(first, self.in_pass)
            source = Rows(*self.data, self._orders(passes, most), self.size)
            yield Chunk(source, index, min(most, end - first))

    def _orders(self, first: int, most: int) -> tf.Tensor | None:
        """Return the orders of as many passes as a chunk may touch: [passes, N]."""
        if self.seed is None:
            return None
        count = 1
        if self.steps != self.in_pass:  # a chunk may start with the last batch of a pass
            count += -(-(min(most, self.steps) - 1) // self.in_pass)
        return tf.stack([self._order(passes) for passes in range(first, first + count)])

    def _shuffled(self, passes: int) -> tf.Tensor:
        rows = tf.range(self.num_data, dtype=tf.int64)
        return tf.random.experimental.stateless_shuffle(rows, seed=[self.seed, passes])


class DatasetBatches(Batches):
    """Batches that are the elements of a `tf.data.Dataset`.

    :param dataset: of pairs (X, Y), batched.
    :param steps_per_epoch: None for as many as the dataset has.
    """

    def __init__(self, dataset: tf.data.Dataset, *, steps_per_epoch: int | None = None) -> None:
        self.dataset = dataset if steps_per_epoch is None else dataset.repeat()
        self.endless = steps_per_epoch is not None
        known = int(dataset.cardinality())
        self.steps = steps_per_epoch if self.endless else known if known >= 0 else None
        self._iterator: Any = None
        self._started = 0

    def epoch(self, number: int, most: int) -> Iterator[Chunk]:
        """Yield chunks until the epoch is full; without a known length, until nobody asks."""
        source = Stream(self._on(number) if self.endless else self._anew(number))
        first = 0
        while self.steps is None or first < self.steps:
            count = most if self.steps is None else min(most, self.steps - first)
            yield Chunk(source, first, count)
            first += count

    def _on(self, number: int) -> Any:
        if self._iterator is None:
            self._iterator = iter(self.dataset.skip(number * (self.steps or 0)))
        return self._iterator

    def _anew(self, number: int) -> Any:
        # A seeded shuffle differs from iterator to iterator: epoch n needs the n-th.
        while self._started <= number:
            iterator = iter(self.dataset)
            self._started += 1
        return iterator


def as_batches(
    name: str,
    data: Any,
    *,
    batch_size: int | None,
    seed: int | None,
    steps_per_epoch: int | None = None,
    likelihood: Likelihood | None = None,
) -> Batches:
    """Return arrays or a Dataset as batches, after a look at what would spoil a fit.

    The likelihood says whether Y are labels, for which other rules hold than for numbers.
    """
    if batch_size is not None:
        checks.count("batch_size", batch_size)
    if steps_per_epoch is not None:
        checks.count("steps_per_epoch", steps_per_epoch)
    if isinstance(data, tf.data.Dataset):
        _require_pairs(name, data, labels.num_classes(likelihood) is not None)
        cardinality = int(data.cardinality())
        if cardinality == 0:
            raise ValueError(f"{name} is a Dataset without any batches.")
        if cardinality == tf.data.INFINITE_CARDINALITY and steps_per_epoch is None:
            raise ValueError(
                f"{name} is a Dataset without an end. Pass steps_per_epoch, or leave out .repeat()."
            )
        return DatasetBatches(data, steps_per_epoch=steps_per_epoch)
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(
            f"{name} is {_brief(data)}; it must be the pair of arrays (X, Y), or a "
            "tf.data.Dataset of batches (X, Y)."
        )
    return ArrayBatches(
        labels.data(likelihood, *data, names=(f"{name}'s X", f"{name}'s Y")),
        batch_size=batch_size,
        seed=seed,
        steps_per_epoch=steps_per_epoch,
    )


def _brief(data: Any) -> str:
    length = f" of length {len(data)}" if isinstance(data, tuple | list) else ""
    return f"a {type(data).__name__}{length}"


def _require_pairs(name: str, dataset: tf.data.Dataset, of_labels: bool) -> None:
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise ValueError(
            f"{name} is a Dataset with the elements {spec}; each must be a batch (X, Y)."
        )
    wanted = np.dtype(default_float()).name
    for part, what in zip(spec, "X" if of_labels else "XY", strict=False):
        if part.dtype != default_float():
            raise TypeError(
                f"{what} of {name} has dtype {part.dtype.name}, but the model computes in "
                f"{wanted}. Map the Dataset with tf.cast, or change gpflow.config's default float."
            )
        if part.shape.rank is not None and part.shape.rank < 2:
            raise ValueError(
                f"{what} of {name} has shape {tuple(part.shape)} in each element, but an element "
                "is a batch, and rank 2 ([B, D]) the least: call .batch(batch_size) on the Dataset."
            )

"""Rows that come in blocks: of files that are too large for memory, as Parquet, and of Datasets.

What is fitted to some rows is fitted to a uniform sample of them; what is a sum over all rows is
summed up block by block.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from gpflow.likelihoods import Likelihood

from ..._core.data import Data
from .scaling import Scaling

Block = tuple[AnyNDArray, ...]
"""(X, Y), or other arrays of as many rows."""

MAX_ROWS_OF_SAMPLE = 50_000
"""What is fitted to some rows is fitted to a sample of at most this many."""

MAX_NUMBERS_OF_PREDICTORS = 20_000_000
"""Predictors are fitted to a sample with at most this many numbers in X, in memory: 160 MB."""

ROWS_OF_BLOCK = 10_000
"""The matrices K_ZX of a block have a row for each of these."""


class ParquetRows:
    """The rows of a Parquet file, or of all those in a folder, as data for `learn`.

    Columns are numbers or booleans, without missing values. A target of booleans is of labels.

    :param path: the file, or the folder.
    :param target: the name of the column that is Y, or the names of several.
    :param columns: the names of the columns that are X, in this order; by default all others, but
        not an index of pandas.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: str | Sequence[str],
        columns: Sequence[str] | None = None,
    ) -> None:
        try:
            from pyarrow import ArrowException, bool_, parquet
        except ImportError as error:
            raise ImportError(
                "ParquetRows needs pyarrow: pip install 'gpflow-gvi[parquet]'."
            ) from error
        self.path = Path(path)
        self.files = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        if not self.files or not self.path.exists():
            raise FileNotFoundError(
                f"path is {self.path}, which is neither a file nor a folder of files *.parquet."
            )
        schemas = {}
        for file in self.files:
            try:
                schemas[file] = parquet.read_schema(file)
            except (ArrowException, OSError) as error:
                raise ValueError(f"{file} is no readable Parquet file ({error}).") from error
        first = schemas[self.files[0]]
        self.target = [target] if isinstance(target, str) else list(target)
        if columns is None:
            indices = (first.pandas_metadata or {}).get("index_columns", ())
            columns = [name for name in first.names if name not in (*self.target, *indices)]
        self.columns = list(columns)
        for file, schema in schemas.items():
            _require_numbers("target", self.target, file, schema)
            _require_numbers("columns", self.columns, file, schema)
        if both := set(self.target).intersection(self.columns):
            raise ValueError(f"{sorted(both)} are in columns and in target. Leave one of them out.")
        kinds = {schema.field(name).type for schema in schemas.values() for name in self.target}
        self.of_booleans = len(self.target) == 1 and kinds == {bool_()}

    def blocks(self, size: int) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        """Yield X and Y, [B, D] and [B, J], of not more than this number of rows at a time."""
        from pyarrow.parquet import ParquetFile

        names = [*self.columns, *self.target]
        for file in self.files:
            start = 0
            # Without a buffer, columns of whole row groups would be read at once.
            with ParquetFile(file, pre_buffer=False, buffer_size=2**20) as table:
                for batch in table.iter_batches(size, columns=names, use_threads=False):
                    values = np.stack([_numbers(batch, name, file, start) for name in names], -1)
                    start += len(values)
                    yield values[:, : len(self.columns)], values[:, len(self.columns) :]


def _require_numbers(argument: str, names: Sequence[str], file: Path, schema: Any) -> None:
    """Raise unless a file has these columns, of numbers."""
    from pyarrow import types

    if not names:
        raise ValueError(f"{argument} names no column of {file}. Name one or more.")
    for name in names:
        if schema.names.count(name) != 1:
            raise ValueError(
                f"{argument} has {name!r}, of which {file} has {schema.names.count(name)} columns. "
                f"Take names that are there once, of {', '.join(schema.names):.1000}."
            )
        kind = schema.field(name).type
        known = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if not any(is_known(kind) for is_known in known):
            raise TypeError(
                f"column {name!r} of {file} has the type {kind}, which is not a number. Name those "
                "to learn from in columns, or write it as numbers: a one-hot code of names, days "
                "since a date."
            )


def _numbers(batch: Any, name: str, file: Path, start: int) -> AnyNDArray:
    """Return a column of a RecordBatch, whose first row is `start` in the file, as floats."""
    import pyarrow

    try:
        column = batch.column(name).cast(pyarrow.float64())
    except pyarrow.ArrowInvalid as error:
        raise TypeError(
            f"column {name!r} of {file} has numbers that no float holds ({error}). Write them in "
            "another unit, or subtract an offset."
        ) from error
    values: AnyNDArray = column.to_numpy(zero_copy_only=False)
    if np.any(missing := np.isnan(values)):
        raise ValueError(
            f"column {name!r} of {file} has missing values, the first in row "
            f"{start + np.argmax(missing)}. Drop such rows, fill them in, or leave the column out "
            "of columns."
        )
    return values


@dataclasses.dataclass(frozen=True)
class Stream:
    """Rows in blocks, of which none is kept.

    :param read: (X, Y) in blocks, the same rows in the same order at each call.
    :param num_rows: N, once it is known.
    :param prepare: a function applied to rows before they are used.
    """

    read: Callable[[], Iterator[Block]]
    num_rows: int = 0
    prepare: Callable[[Block], Block] = lambda block: block

    def blocks(self) -> Iterator[Block]:
        """Yield all rows in blocks, prepared."""
        return map(self.prepare, self.read())

    def sample(self, count: int, seed: Any) -> tuple[Block, AnyNDArray]:
        """Return a uniform sample without replacement, prepared, and which rows it is.

        Each row draws a number, and the rows of the smallest ones are the sample (Fan, Muller and
        Rezucha 1962): one pass, whatever the order of the rows. They keep their order.
        """
        random = np.random.default_rng(seed)
        kept: list[Block] = []
        start, largest = 0, np.inf
        for block in self.read():
            drawn = random.random(len(block[0]))
            few = np.flatnonzero(drawn < largest)
            kept.append((drawn[few], few + start, *(part[few] for part in block)))
            if sum(len(part[0]) for part in kept) > 2 * count:
                kept = [_smallest(kept, count)]
                largest = np.max(kept[0][0])
            start += len(drawn)
        _, indices, *rows = _smallest(kept, count)
        order = np.argsort(indices)
        return self.prepare(tuple(part[order] for part in rows)), indices[order]

    def batches(self, num_rows: int, batch_size: int, seed: int) -> tf.data.Dataset:
        """Return batches without end of X and Y, prepared: a new sample for each `num_rows` rows.

        A batch is made of rows from all over the data, also where these are sorted.
        """

        def samples() -> Iterator[Block]:
            for number in itertools.count():
                (X, Y), _ = self.sample(num_rows, (seed, number))
                order = np.random.default_rng((seed, number)).permutation(len(X))
                yield X[order], Y[order]

        first = next(self.blocks())
        spec = tuple(tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in first)
        dataset = tf.data.Dataset.from_generator(samples, output_signature=spec)
        return dataset.unbatch().batch(batch_size, drop_remainder=True)


def _smallest(blocks: list[Block], count: int) -> Block:
    """Return the rows with the smallest numbers in the first array."""
    joined = tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))
    if len(joined[0]) <= count:
        return joined
    first = np.argpartition(joined[0], count - 1)[:count]
    return tuple(part[first] for part in joined)


class Survey(NamedTuple):
    """The findings of a first pass over all rows."""

    stream: Stream
    """All rows."""
    rows: Block
    """A sample of (X, Y), or all of them if they are not more."""
    indices: AnyNDArray
    """Which rows the sample is."""
    units: tuple[Scaling, Scaling]
    """The standard units of X and Y by all rows."""

    def all_but(self, sampled: AnyNDArray) -> Stream:
        """Return all rows but some of the sample, given by where they stand in it.

        Raise while they are read if the rows are not those of the first pass.
        """
        order = np.sort(sampled)  # as the indices are
        indices, expected = self.indices[order], self.rows[0][order]
        N = self.stream.num_rows

        def read() -> Iterator[Block]:
            start = 0
            for block in self.stream.read():
                end = start + len(block[0])
                first, last = np.searchsorted(indices, (start, end))
                here = indices[first:last] - start
                found = np.asarray(block[0][here], expected.dtype)
                if not np.array_equal(found, expected[first:last]):
                    raise ValueError(
                        "data come in another order each time they are read, so that rows cannot "
                        "be held out. Pass reshuffle_each_iteration=False to shuffle, or leave it "
                        "out: the order does not matter."
                    )
                yield tuple(np.delete(part, here, axis=0) for part in block)
                start = end
            if start != N:
                raise ValueError(
                    f"data had {N} rows when they were first read, and have {start} now. They are "
                    "read several times: a Dataset's generator must start anew each time."
                )

        return Stream(read, N - len(indices))


def survey(
    data: Any, likelihood: Likelihood | None, seed: int, *, for_predictors: bool = False
) -> Survey | None:
    """Return the findings of one pass over the rows; None for arrays, which are in memory.

    :param data: (X, Y), where X is memory-mapped; a Dataset of rows or batches (X, Y);
        `ParquetRows`; or anything else.
    :param for_predictors: whether the sample is for predictors, too, which learn from many rows.
    """
    from sklearn.preprocessing import StandardScaler

    read = _reader(data)
    if read is None:
        return None
    stream = Stream(lambda: ((X, Y[:, None] if Y.ndim == 1 else Y) for X, Y in read()))
    scalers = StandardScaler(), StandardScaler()
    count = 0

    def validated() -> Iterator[Block]:
        nonlocal count
        for block in stream.read():
            names = (f"X[{count}:]", f"Y[{count}:]") if count else ("X", "Y")
            rows = tuple(np.asarray(part) for part in Data.of(block, likelihood, names=names))
            for part, scaler in zip(rows, scalers, strict=True):
                scaler.partial_fit(part.reshape(len(part), -1))
            count += len(rows[0])
            yield rows
        if not count:
            raise ValueError("data has no rows. Check what they are read from.")

    blocks = validated()
    first, size = next(blocks), MAX_ROWS_OF_SAMPLE
    if for_predictors:
        size = max(size, MAX_NUMBERS_OF_PREDICTORS // max(first[0][0].size, 1))
    rows, indices = Stream(lambda: itertools.chain([first], blocks)).sample(size, seed)
    units = _units(scalers[0], rows[0]), _units(scalers[1], rows[1])
    return Survey(Stream(stream.read, count), rows, indices, units)


def _units(scaler: Any, rows: AnyNDArray) -> Scaling:
    moments = scaler.mean_, np.sqrt(scaler.var_)
    return Scaling.of_moments(
        *(moment.reshape(rows.shape[1:]).astype(default_float()) for moment in moments)
    )


def are_booleans(data: Any) -> bool:
    """Return True if Y of data in blocks is a column of booleans."""
    if isinstance(data, tf.data.Dataset):
        Y = _validated(data).element_spec[1]
        return Y.dtype == tf.bool and Y.shape[1:] in ((), (1,))
    return isinstance(data, ParquetRows) and data.of_booleans


def _reader(data: Any) -> Callable[[], Iterator[Block]] | None:
    """Return a reader of data that are not in memory, block by block; None for other data."""
    if isinstance(data, str | os.PathLike):
        raise TypeError(
            f"data is the path {os.fspath(data)!r}. Say which columns of a Parquet file are Y: "
            "ParquetRows(path, target='y'); or read the file to arrays (X, Y)."
        )
    if isinstance(data, ParquetRows):
        return functools.partial(data.blocks, ROWS_OF_BLOCK)
    if isinstance(data, tf.data.Dataset):
        return functools.partial(_blocks_of_dataset, _validated(data))
    if not isinstance(data, tuple | list) or len(data) != 2 or not isinstance(data[0], np.memmap):
        return None
    X, Y = data[0], data[1] if isinstance(data[1], np.ndarray) else np.asarray(data[1])
    if X.ndim < 2 or Y.ndim not in (1, 2) or len(X) != len(Y):
        return None  # to be refused as arrays are
    return functools.partial(_blocks_of_arrays, X, Y)


def _blocks_of_arrays(*arrays: AnyNDArray) -> Iterator[Block]:
    for start in range(0, len(arrays[0]), ROWS_OF_BLOCK):
        yield tuple(np.array(array[start : start + ROWS_OF_BLOCK]) for array in arrays)
        for array in arrays:
            _release(array)


def _release(array: Any) -> None:
    """Let pages of a file go that were read, which else count as memory of this process."""
    private = getattr(array, "mode", "c") == "c"  # its changes are nowhere else
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and not private:
        array.madvise(mmap.MADV_DONTNEED)


def _validated(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a Dataset in blocks."""
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("data is a Dataset without an end. Leave out .repeat().")
    spec = dataset.element_spec
    pair = isinstance(spec, tuple) and len(spec) == 2
    if not pair or not all(isinstance(part, tf.TensorSpec) for part in spec):
        raise TypeError(
            f"data is a Dataset with the elements {spec}; each must be a row or a batch (X, Y), as "
            "dataset.map(lambda element: (element['x'], element['y'])) makes them."
        )
    ranks = tuple(part.shape.rank for part in spec)
    if ranks not in ((1, 0), (1, 1), (2, 1), (2, 2)):
        raise ValueError(
            f"X and Y of data have the shapes {spec[0].shape} and {spec[1].shape} in each element "
            "of the Dataset. Give rows, X [D] with Y [] or [J], or batches, X [B, D] with Y [B] or "
            "[B, J], and declare the shapes if they are not known."
        )
    return dataset.batch(ROWS_OF_BLOCK) if ranks[0] == 1 else dataset.rebatch(ROWS_OF_BLOCK)


def _blocks_of_dataset(dataset: tf.data.Dataset) -> Iterator[Block]:
    try:
        yield from dataset.as_numpy_iterator()
    except (tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError) as error:
        raise ValueError(
            f"data is a Dataset whose elements cannot be joined ({error.message:.200}). Give all "
            "rows the same columns."
        ) from error

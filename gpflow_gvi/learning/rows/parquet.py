"""Rows of a Parquet file that is too large for memory, read by pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray


class ParquetRows:
    """The rows of a Parquet file, or of all those in a folder, as data for `learn`.

    Columns are numbers or booleans, without missing values.

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
            from pyarrow import ArrowException, parquet
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

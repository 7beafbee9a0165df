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
            import pyarrow.dataset
        except ImportError as error:
            raise ImportError(
                "ParquetRows needs pyarrow: pip install 'gpflow-gvi[parquet]'."
            ) from error
        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"path is {self.path}, which does not exist. Check its name.")
        try:
            self._table = pyarrow.dataset.dataset(self.path, format="parquet")
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{self.path} is no readable Parquet file ({error}).") from error
        schema = self._table.schema
        self.target = [target] if isinstance(target, str) else list(target)
        if columns is None:
            indices = (schema.pandas_metadata or {}).get("index_columns", ())
            columns = [name for name in schema.names if name not in (*self.target, *indices)]
        self.columns = list(columns)
        for argument, names in (("target", self.target), ("columns", self.columns)):
            self._require_numbers(argument, names)
        if both := set(self.target).intersection(self.columns):
            raise ValueError(f"{sorted(both)} are in columns and in target. Leave one of them out.")

    def blocks(self, size: int) -> Iterator[tuple[AnyNDArray, AnyNDArray]]:
        """Yield X and Y, [B, D] and [B, J], of not more than this number of rows at a time."""
        names, start = [*self.columns, *self.target], 0
        batches = self._table.to_batches(
            columns=names,
            batch_size=size,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )
        for batch in batches:
            if batch.num_rows:
                values = np.stack([self._numbers(name, batch[name], start) for name in names], -1)
                start += batch.num_rows
                yield values[:, : len(self.columns)], values[:, len(self.columns) :]

    def _require_numbers(self, argument: str, names: Sequence[str]) -> None:
        from pyarrow import types

        schema = self._table.schema
        if not names:
            raise ValueError(f"{argument} names no column of {self.path}. Name one or more.")
        for name in names:
            if schema.names.count(name) != 1:
                raise ValueError(
                    f"{argument} has {name!r}, of which {self.path} has {schema.names.count(name)} "
                    f"columns. Take names that are there once, of {', '.join(schema.names):.1000}."
                )
            kind = schema.field(name).type
            known = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
            if not any(is_known(kind) for is_known in known):
                raise TypeError(
                    f"column {name!r} of {self.path} has the type {kind}, which is no number. Name "
                    "those to learn from in columns, or write it as numbers: a one-hot code of "
                    "names, days since a date."
                )

    def _numbers(self, name: str, column: Any, start: int) -> AnyNDArray:
        import pyarrow

        try:
            values: AnyNDArray = column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
        except pyarrow.ArrowInvalid as error:
            raise TypeError(
                f"column {name!r} of {self.path} has numbers that are no floats ({error}). Write "
                "them in another unit, or subtract an offset."
            ) from error
        if np.any(missing := np.isnan(values)):
            raise ValueError(
                f"column {name!r} of {self.path} has missing values, the first in row "
                f"{start + np.argmax(missing)}. Drop such rows, fill them in, or leave the column "
                "out of columns."
            )
        return values

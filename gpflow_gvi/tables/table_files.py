"""Tables in files of CSV or Parquet: read as a whole, or a part at a time, and written so."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.files import new_file
from . import text_cells
from .requirements import required
from .text_format import TextFormat

if TYPE_CHECKING:
    import pandas as pd

PARQUET = (".parquet", ".pq")


class Written(NamedTuple):
    """The way numbers and columns of a file are written, also in files made from it."""

    form: TextFormat
    decimal: str

    def __str__(self) -> str:
        """Return its unusual features in words."""
        parts = [str(self.form)] + ["with decimal commas"] * (self.decimal == ",")
        return ", ".join(filter(None, parts))


def header(path: Path) -> list[str]:
    """Return the names of the columns of a file."""
    if path.suffix in PARQUET:
        return list(required("pyarrow.parquet").read_schema(path).names)
    return list(TextFormat.of(path).names)


def read(path: Path) -> tuple[pd.DataFrame, str]:
    """Return the table in a file, which has rows, and the unusual features of its format."""
    pandas = required("pandas")
    if path.suffix in PARQUET:
        required("pyarrow")
        with _explained(path):
            return _with_rows(pandas.read_parquet(path), path), ""
    with _explained(path):
        form = TextFormat.of(path)
        # Numbers as Python writes them are read fast; text only where commas may be in numbers.
        table = _with_rows(pandas.read_csv(path, **_options(form) | {"dtype": None}), path)
        written = Written(form, ".")
        if text_cells.has_commas(table, form.separator):
            table = pandas.read_csv(path, **_options(form))
            written = Written(form, text_cells.decimal_of(table, form.separator))
    table = text_cells.canonical(table, written.decimal)
    columns = {name: text_cells.typed(column) for name, column in table.items()}
    return pandas.DataFrame(columns, index=table.index), str(written)


def chunks(path: Path, size: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, Written | None]]:
    """Yield a table a part at a time: as it is in the file, with canonical numbers, and the format.

    What is read of CSV is text.
    """
    pandas = required("pandas")
    with _explained(path):
        if path.suffix in PARQUET:
            with required("pyarrow.parquet").ParquetFile(path) as file:
                for batch in file.iter_batches(size):
                    part = _with_rows(batch.to_pandas(), path)
                    yield part, part, None
            return
        form, written = TextFormat.of(path), None
        with pandas.read_csv(path, chunksize=size, **_options(form)) as parts:
            for part in parts:
                if written is None:
                    written = Written(form, text_cells.decimal_of(part, form.separator))
                canonical = text_cells.canonical(part, written.decimal)
                yield _with_rows(part, path), canonical, written


def _options(form: TextFormat) -> dict[str, Any]:
    return {
        "sep": form.separator,
        "encoding": form.encoding,
        "dtype": str,
        "skipinitialspace": True,
        "low_memory": False,
    }


@contextlib.contextmanager
def writer(path: Path) -> Iterator[Callable[[pd.DataFrame, Written | None], None]]:
    """Yield a function that appends a table to a file, which is complete or not there at all.

    It writes CSV as another file is written.
    """
    with new_file(path) as stream, contextlib.ExitStack() as stack:
        file: Any = None

        def write(table: pd.DataFrame, like: Written | None) -> None:
            nonlocal file
            is_first = file is None
            if path.suffix not in PARQUET:
                form, decimal = like or (TextFormat(), ".")
                if is_first and form.encoding == "utf-8-sig":
                    stream.write(codecs.BOM_UTF8)
                file = stream
                separator = "\t" if ".tsv" in path.suffixes else form.separator
                options = {"sep": separator, "decimal": decimal, "float_format": "%.7g"}
                table.to_csv(file, header=is_first, index=False, mode="wb", **options)
                return
            part = required("pyarrow").Table.from_pandas(table, preserve_index=False)
            if is_first:
                parquet = required("pyarrow.parquet")
                file = stack.enter_context(parquet.ParquetWriter(stream, part.schema))
            file.write_table(part.cast(file.schema))

        yield write


def _with_rows(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    if not len(table):
        raise ValueError(f"{path} has no rows. Give a table with a header and rows below it.")
    return table


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors that name the file."""
    errors = required("pandas").errors
    try:
        yield
    except errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty. Give a table with a header and rows.") from error
    except (errors.ParserError, UnicodeDecodeError) as error:
        reason = str(error).replace("\n", " ")
        raise ValueError(f"{path} cannot be read as a table ({reason}).") from error

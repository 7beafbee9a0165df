"""Tables in files of CSV or Parquet: read as a whole, or a part at a time, and written so."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import new_file

if TYPE_CHECKING:
    import pandas as pd

PARQUET = (".parquet", ".pq")


def read(path: Path) -> pd.DataFrame:
    """Return the table in a file, which has rows."""
    pandas = required("pandas")
    with _explained(path):
        if path.suffix in PARQUET:
            required("pyarrow")
            table = pandas.read_parquet(path)
        else:
            table = pandas.read_csv(path, sep=_separator(path), low_memory=False)
    return _with_rows(table, path)


def chunks(path: Path, size: int) -> Iterator[pd.DataFrame]:
    """Yield a table a part at a time; what is read of CSV is text, as it is in the file."""
    pandas = required("pandas")
    with _explained(path):
        if path.suffix in PARQUET:
            with required("pyarrow.parquet").ParquetFile(path) as file:
                for batch in file.iter_batches(size):
                    yield _with_rows(batch.to_pandas(), path)
            return
        with pandas.read_csv(path, sep=_separator(path), dtype=str, chunksize=size) as parts:
            for part in parts:
                yield _with_rows(part, path)


@contextlib.contextmanager
def writer(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that appends a table to a file, which is complete or not there at all."""
    with new_file(path) as stream, contextlib.ExitStack() as stack:
        file: Any = None

        def write(table: pd.DataFrame) -> None:
            nonlocal file
            is_first = file is None
            if path.suffix not in PARQUET:
                file, options = stream, {"header": is_first, "float_format": "%.7g", "mode": "wb"}
                table.to_csv(file, sep=_separator(path), index=False, **options)
                return
            part = required("pyarrow").Table.from_pandas(table, preserve_index=False)
            if is_first:
                parquet = required("pyarrow.parquet")
                file = stack.enter_context(parquet.ParquetWriter(stream, part.schema))
            file.write_table(part.cast(file.schema))

        yield write


def require_file(path: Path) -> None:
    """Raise unless there is such a file."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}. Give a file of CSV or Parquet.")


def require_new(path: Path) -> None:
    """Raise if there is such a file."""
    if path.exists():
        raise FileExistsError(
            f"{path} is there already; pass --overwrite to replace it, or name another file by "
            "--output."
        )


def require_extra(*modules: str) -> None:
    """Raise unless modules of the extra `tables` are there; they are not imported."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            required(name)


def required(name: str) -> Any:
    """Return a module of the extra `tables`, or raise saying how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(
            f"{package} is not installed, which tables need: pip install 'gpflow-gvi[tables]'"
        ) from error


def _separator(path: Path) -> str:
    return "\t" if ".tsv" in path.suffixes else ","


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

"""Tables in files of CSV or Parquet: read as a whole, or a part at a time, and written so."""

from __future__ import annotations

import bz2
import codecs
import collections
import contextlib
import csv
import functools
import gzip
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from .._core.files import new_file
from . import text_cells
from .decimals import Decimals, decimals_of, has_commas
from .requirements import required

if TYPE_CHECKING:
    import pandas as pd

TEXT = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data", "")
PARQUET = (".parquet", ".pq")

SEPARATORS = ("\t", ";", "|", ",")
"""If two fit, the first is taken: a comma stands in numbers and in headers, too."""

NUM_LINES = 100
"""The number of lines that have to agree."""

_OPENERS: dict[str, Any] = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def endings(path: Path) -> tuple[str, str]:
    """Return the ends of a name that say kind and compression, or raise if it is of no table."""
    last = path.suffix.lower()
    kind, packed = (Path(path.stem).suffix.lower(), last) if last in _OPENERS else (last, "")
    if kind not in TEXT + PARQUET * (not packed):
        raise ValueError(
            f"{path} is no table by its name. Tables are CSV ({', '.join(TEXT[:-1])}, also with "
            f".gz, .bz2 or .xz behind) or Parquet ({', '.join(PARQUET)}). Give a file of one of "
            "these kinds, or rename it if it is one."
        )
    return kind, packed


def is_parquet(path: Path) -> bool:
    """Return True for Parquet and False for CSV, by the name of a file."""
    return endings(path)[0] in PARQUET


def _opened(path: Path, *mode: str, **options: Any) -> Any:
    return _OPENERS[endings(path)[1]](path, *mode, **options)


def _has_tabs(path: Path) -> bool:
    return endings(path)[0] in (".tsv", ".tab")


class TextFormat(NamedTuple):
    """How a file of CSV is written, and files made from it are, with names in its header."""

    separator: str = ","
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()
    decimal: str = "."
    others: tuple[str, ...] = ()
    """The columns whose decimal mark is the other one of comma and point."""

    @classmethod
    def of(cls, path: Path, like: TextFormat | None = None) -> TextFormat:
        """Return the format of a file, or raise if its header has a name twice.

        :param like: that of a file with the same columns, whose separator is taken if it fits.
        """
        with _opened(path, "rb") as stream:
            encoding = _encoding(stream)
        with _opened(path, "rt", encoding=encoding, newline="") as stream:
            lines = list(itertools.islice((line for line in stream if line.strip()), NUM_LINES))
        if not lines:
            raise ValueError(f"{path} is empty. Give a table with a header and rows.")
        separator = "\t" if _has_tabs(path) else _separator(lines, like)
        names, *rows = _rows(lines, separator)
        is_shifted = all(len(row) == len(names) + 1 for row in rows) and any(r[-1] for r in rows)
        if is_shifted and len(names) > 1:  # by R's names of rows, and not by one decimal comma
            names = ["", *names]
        _require_distinct(path, names)
        return cls(separator, encoding, tuple(_named(names)))

    @property
    def is_day_first(self) -> bool:
        """Whether it is that of a place where dates begin with the day, as decimals have a comma.

        Programs separate columns by semicolons where the comma stands in numbers.
        """
        return self.decimal == "," or self.separator == ";"

    @property
    def decimals(self) -> Decimals:
        """The decimal marks of all columns."""
        return Decimals(self.decimal, self.others)

    def with_decimals(self, found: Decimals) -> TextFormat:
        """Return the format with other decimal marks."""
        return self._replace(decimal=found.mark, others=found.others)

    def __str__(self) -> str:
        """Return its unusual features in words."""
        names = {"\t": "tabs", ";": "semicolons", "|": "bars"}
        parts = [f"separated by {names[self.separator]}"] if self.separator in names else []
        parts += [self.encoding] * (not self.encoding.startswith("utf-8"))
        return ", ".join(parts + ["with decimal commas"] * (self.decimal == ","))


def read(path: Path) -> tuple[pd.DataFrame, TextFormat]:
    """Return the table in a file, which has rows, and its format."""
    pandas = required("pandas")
    with _explained(path):
        if is_parquet(path):
            with _parquet(path) as file:
                table, form = _in_pandas(file.read()), TextFormat()
        else:
            form = TextFormat.of(path)
            _require_names(path, form)
            # Numbers as Python writes them are read fast; text where commas may be in them, and
            # after semicolons points before thousands, which are lost in a number.
            is_text = form.separator == ";"
            if not is_text:
                table = pandas.read_csv(path, **_options(form) | {"dtype": None})
                is_text = has_commas(table)
            if is_text:
                table = pandas.read_csv(path, **_options(form))
                form = form.with_decimals(decimals_of([table], form.names, form.separator))
            _require_rows(path, len(table))
    table = text_cells.canonical(table, form.decimals.of)
    columns = {name: text_cells.typed(column) for name, column in table.items()}
    return pandas.DataFrame(columns, index=table.index), form


def chunks(
    path: Path, size: int, like: TextFormat | None = None
) -> Iterator[tuple[Any, pd.DataFrame, TextFormat]]:
    """Yield a table a part at a time: as it is in the file, with canonical numbers, and the format.

    What is read of CSV is text, and of Parquet, as it is there, a table of Arrow.

    :param like: the format of a file with the same columns, for what this one leaves open.
    """
    pandas = required("pandas")
    with _explained(path):
        if is_parquet(path):
            count, form = 0, TextFormat()
            with _parquet(path) as file:
                for batch in file.iter_batches(size):
                    own = required("pyarrow").Table.from_batches([batch])
                    part = _in_pandas(own)
                    part.index += count
                    count += len(part)
                    yield own, text_cells.canonical(part, form.decimals.of), form
            return
        form = TextFormat.of(path, like)
        _require_names(path, form)
        usual = like.decimals if like and like.separator == form.separator else None
        names = like.names if like else form.names
        in_parts = functools.partial(pandas.read_csv, path, chunksize=size, **_options(form))
        with in_parts() as parts:
            form = form.with_decimals(decimals_of(parts, names, form.separator, usual))
        with in_parts() as parts:
            for part in parts:
                _require_rows(path, len(part))
                yield part, text_cells.canonical(part, form.decimals.of), form


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Yield a file of Parquet, to be read without what pandas writes there on an index of its own.

    What is an index to pandas is a column as any other.
    """
    with required("pyarrow.parquet").ParquetFile(path) as file:
        _require_distinct(path, file.schema_arrow.names)
        _require_rows(path, file.metadata.num_rows)
        yield file


def _in_pandas(table: Any) -> pd.DataFrame:
    """Return a table of Arrow as one of pandas, with lists as text.

    Pandas does not take the categories of polars.
    """
    pyarrow, types = required("pyarrow"), required("pyarrow.types")
    for i, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
        if types.is_nested(kind):
            cells = [None if cell is None else str(cell) for cell in table.column(i).to_pylist()]
            table = table.set_column(i, name, pyarrow.array(cells, pyarrow.string()))
        elif types.is_dictionary(kind) and types.is_unsigned_integer(kind.index_type):
            table = table.set_column(i, name, table.column(i).cast(kind.value_type))
    return table.to_pandas(ignore_metadata=True)


def _options(form: TextFormat) -> dict[str, Any]:
    return {
        "sep": form.separator,
        "encoding": form.encoding,
        "header": 0,
        "names": form.names,
        "usecols": range(len(form.names)),  # or else pandas takes what is beyond for an index
        "index_col": False,
        "dtype": str,
        "skipinitialspace": True,
        "keep_default_na": False,
        "na_values": [""],  # what words such as "NA" mean depends on the column
        "low_memory": False,
    }


@contextlib.contextmanager
def writer(path: Path) -> Iterator[Callable[[Any, pd.DataFrame, TextFormat], None]]:
    """Yield a function that appends rows to a file, which is complete or not there at all.

    It takes a part of a table as it is in its file, as `chunks` yields it, and more columns of
    these rows. It writes CSV as another file is written.
    """
    opener = _OPENERS[endings(path)[1]]
    with new_file(path) as new, contextlib.ExitStack() as stack:
        stream = new if opener is open else stack.enter_context(opener(new, "wb"))
        file: Any = None

        def write(own: Any, more: pd.DataFrame, form: TextFormat) -> None:
            nonlocal file
            is_first, is_text = file is None, isinstance(own, required("pandas").DataFrame)
            if not is_parquet(path):
                separator = "\t" if _has_tabs(path) else form.separator
                options = {"sep": separator, "decimal": form.decimal}
                table = (own if is_text else _in_pandas(own).set_index(more.index)).join(more)
                text = table.to_csv(header=is_first, index=False, **options)
                file = file or _encoder(form.encoding, text)
                stream.write(file.encode(text))
                return
            from_pandas = required("pyarrow").Table.from_pandas
            part = from_pandas(own, preserve_index=False) if is_text else own
            made = from_pandas(more, preserve_index=False)
            for field, column in zip(made.schema, made.columns, strict=True):
                part = part.append_column(field, column)
            part = part.replace_schema_metadata(None)  # of the columns that pandas wrote
            if is_first:
                parquet = required("pyarrow.parquet")
                file = stack.enter_context(parquet.ParquetWriter(stream, part.schema))
            file.write_table(part.cast(file.schema))

        yield write


def _encoder(encoding: str, text: str) -> codecs.IncrementalEncoder:
    """Return an encoder of a text and of what follows it, of UTF-8 if another does not have it.

    What is predicted may have other characters than the file has, all of them in its header.
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        encoding = "utf-8-sig"
    return codecs.getincrementalencoder(encoding)()  # with one byte order mark, if any


def _require_rows(path: Path, count: int) -> None:
    if not count:
        raise ValueError(f"{path} has no rows. Give a table with a header and rows below it.")


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise errors that name the file, as those of the system do."""
    kinds: tuple[Any, ...] = (required("pandas").errors.ParserError, UnicodeDecodeError, csv.Error)
    kinds += (OSError, EOFError, zlib.error, lzma.LZMAError)
    if is_parquet(path):
        kinds += (required("pyarrow").ArrowException,)
    try:
        yield
    except kinds as error:
        if getattr(error, "errno", None) is not None:
            raise
        reason = str(error).replace("\n", " ")
        raise ValueError(f"{path} cannot be read as a table ({reason}).") from error


def _encoding(stream: IO[bytes]) -> str:
    """Return UTF-8 or UTF-16 if a file is so, or else what Windows writes in the west."""
    start = stream.read(4)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(start)
        for block in iter(lambda: stream.read(1 << 20), b""):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig" if start.startswith(codecs.BOM_UTF8) else "utf-8"


def _separator(lines: list[str], like: TextFormat | None) -> str:
    """Return that of `like` if it gives its names, or the one by which lines agree in columns."""
    if like and set(like.names) <= set(_rows(lines[:1], like.separator)[0]):
        return like.separator

    def agreement(separator: str) -> float:
        header, *rows = (len(row) for row in _rows(lines, separator))
        return 0.0 if header < 2 else (1 + rows.count(header)) / (1 + len(rows))

    best = max(SEPARATORS, key=agreement)
    return best if agreement(best) else ","


def _require_distinct(path: Path, names: list[str]) -> None:
    twice = [name for name, n in collections.Counter(names).items() if n > 1 and name]
    if twice:
        places = [i + 1 for i, name in enumerate(names) if name == twice[0]]
        raise ValueError(
            f"{path} has two columns with one name, {twice[0]!r}, at {places}. Rename one."
        )


def _named(names: list[str]) -> Iterator[str]:
    """Yield the names of columns, where one has none that of pandas, which no other one has."""
    for i, name in enumerate(names):
        made = name or f"Unnamed: {i}"
        while made in names and not name:
            made += ".1"
        yield made


def _require_names(path: Path, form: TextFormat) -> None:
    """Raise if a row has cells beyond the names in the header, which pandas cuts in places."""
    with _opened(path, "rt", encoding=form.encoding, newline="") as stream:
        rows = csv.reader(stream, delimiter=form.separator, skipinitialspace=True)
        for row in rows:
            if any(row[len(form.names) :]):
                raise ValueError(
                    f"{path} cannot be read as a table: line {rows.line_num} has {len(row)} cells, "
                    f"but the header names {len(form.names)}. Name every column, or put cells "
                    "that contain the separator in quotation marks."
                )


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))

"""How a text file of a table is written: found out from its first lines, before it is read."""

from __future__ import annotations

import bz2
import codecs
import collections
import csv
import gzip
import itertools
import lzma
from pathlib import Path
from typing import IO, Any, NamedTuple

SEPARATORS = ("\t", ";", "|", ",")
"""If two fit, the first is taken: a comma stands in numbers and in headers, too."""

NUM_LINES = 100
"""The number of lines that have to agree."""

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class TextFormat(NamedTuple):
    """The separator and the encoding of a file of CSV, and the names in its header."""

    separator: str = ","
    encoding: str = "utf-8"
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> TextFormat:
        """Return the format of a file, or raise if its header has a name twice."""
        with _OPENERS.get(path.suffix, open)(path, "rb") as stream:
            encoding = _encoding(stream)
        with _OPENERS.get(path.suffix, open)(path, "rt", encoding=encoding, newline="") as stream:
            lines = list(itertools.islice((line for line in stream if line.strip()), NUM_LINES))
        if not lines:
            raise ValueError(f"{path} is empty. Give a table with a header and rows.")
        separator = "\t" if ".tsv" in path.suffixes else _separator(lines)
        names = _rows(lines, separator)[0]
        twice = [name for name, n in collections.Counter(names).items() if n > 1 and name]
        if twice:
            places = [i + 1 for i, name in enumerate(names) if name == twice[0]]
            raise ValueError(
                f"{path} has two columns with one name, {twice[0]!r}, at {places}. Rename one."
            )
        named = (name or f"Unnamed: {i}" for i, name in enumerate(names))  # as pandas names it
        return cls(separator, encoding, tuple(named))

    def __str__(self) -> str:
        """Return its unusual features in words."""
        names = {"\t": "tabs", ";": "semicolons", "|": "bars"}
        parts = [f"separated by {names[self.separator]}"] if self.separator in names else []
        return ", ".join(parts + [self.encoding] * (not self.encoding.startswith("utf-8")))


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


def _separator(lines: list[str]) -> str:
    """Return the separator that gives most lines as many columns as the header has."""

    def agreement(separator: str) -> float:
        header, *rows = (len(row) for row in _rows(lines, separator))
        return 0.0 if header < 2 else (1 + rows.count(header)) / (1 + len(rows))

    best = max(SEPARATORS, key=agreement)
    return best if agreement(best) else ","


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    try:
        return list(csv.reader(lines, delimiter=separator, skipinitialspace=True)) or [[]]
    except csv.Error:  # a quotation that does not end, say, which pandas tells better
        return [[]]

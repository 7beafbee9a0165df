"""What has to be there: files, libraries, columns; what is not is named in an error."""

from __future__ import annotations

import collections
import difflib
import importlib
import importlib.util
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any


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


def require_writable(folder: Path) -> None:
    """Raise unless a folder can be made, with those that it is in; none is left there."""
    place = next(each for each in folder.expanduser().resolve().parents if each.exists())
    try:
        with tempfile.TemporaryDirectory(dir=place):
            pass
    except OSError as error:
        raise OSError(
            f"{folder} cannot be written: {place} takes no new folder ({error.strerror}). Give "
            "another place by --output, or make this one writable."
        ) from error


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


def require_known(what: str, chosen: Iterable[str], columns: Iterable[object]) -> None:
    """Raise unless a table has the columns that an argument names, with those that are alike."""
    names = [str(column) for column in columns]
    for name in chosen:
        if name not in names:
            lowered = {each.lower(): each for each in names}
            alike = [lowered[each] for each in difflib.get_close_matches(name.lower(), lowered)]
            remedy = f"its columns are {names}"
            if alike:
                remedy = f"did you mean {' or '.join(map(repr, alike))}?"
            raise ValueError(f"{what} {name!r} is no column of the table; {remedy}")


def require_columns(used: Collection[str], columns: Iterable[object]) -> None:
    """Raise unless a table has all columns that a model was learned from, each of them once."""
    counts = collections.Counter(str(column) for column in columns)
    missing = [name for name in used if not counts[name]]
    if missing:
        raise ValueError(
            f"the table lacks the columns {missing}, which the model was learned from; it has "
            f"{list(counts)}."
        )
    for name in used:
        if counts[name] > 1:
            raise ValueError(f"the table has two columns {name!r}. Leave out or rename one.")

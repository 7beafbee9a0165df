"""What has to be there, files and libraries, or is named in an error."""

from __future__ import annotations

import importlib
import importlib.util
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

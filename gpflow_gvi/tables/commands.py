"""The commands `learn` and `predict`: what is read, what is written, and what is said meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from .._core import progress
from .learn import learn_table
from .page import write_page
from .predict import predict_file
from .table_files import required


def learn(path: Path, target: str, output: Path, *, overwrite: bool, **options: Any) -> str:
    """Learn from a file, write the model and a page on it to a folder, and return the summary.

    :param path: a file of CSV or Parquet.
    :param target: the column to predict.
    :param output: the folder.
    :param overwrite: whether the model in it may be replaced.
    :param options: of `learn_table`.
    """
    for module in ("pandas", "jinja2", "matplotlib"):
        required(module)  # before anything is learned
    is_ours = (output / "structure.json").exists()
    if (
        output.exists()
        and not (is_ours and overwrite)
        and (output.is_file() or any(output.iterdir()))
    ):
        remedy = "pass --overwrite to replace it, or name" if is_ours else "name"
        raise FileExistsError(f"{output} is in use; {remedy} another folder by --output.")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file.")
    with progress.spoken(1, sys.stderr):
        outcome = learn_table(path, target, **options)
        progress.now(f"writing {output}")
        outcome.model.save(output, overwrite=overwrite)
        write_page(outcome, path, output / "report.html")
    return str(outcome)


def predict(folder: Path, path: Path, output: Path | None, coverage: float | None) -> str:
    """Write the predictions of a file, and return a line on them."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file.")
    output = path.with_name(f"{path.stem}_predicted{path.suffix}") if output is None else output
    with progress.spoken(1, sys.stderr):
        count = predict_file(folder, path, output, coverage=coverage)
    return f"{count:,} rows: {output}"

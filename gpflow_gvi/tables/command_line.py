"""The commands `learn` and `predict` of the command line.

Mistakes are found before TensorFlow is imported, which takes long.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, TypeAlias

from .._core import progress
from .._core.quiet import loading
from .requirements import require_extra, require_file, require_new, require_writable

Commands: TypeAlias = "argparse._SubParsersAction[Any]"


def add_learn(commands: Commands) -> None:
    """Add the command `learn`."""
    learn = commands.add_parser("learn", help="learn a model of a column of a table")
    add = learn.add_argument
    add("table", type=Path, help="a file of CSV or Parquet")
    add("--target", required=True, help="the column to predict: numbers or classes")
    add("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    add("--keep", nargs="+", default=[], metavar="COLUMN", help="use though it may number rows")
    add("--task", choices=("regression", "classification"), help="by default it is recognised")
    names = "auto, none, hist_gradient_boosting, random_forest, extra_trees or ridge"
    add("--predictor", default="auto", help=f"what to learn around: {names}")
    add("--loss", choices=("robust",), help="find outliers of the target, and learn without them")
    add("--effort", choices=("fast", "default", "best"), default="default")
    add("--held-out", type=float, metavar="PART", help="of the rows, to score with; by default 0.2")
    add("--split", choices=("random", "time"), help="hold out rows at random, or the last by date")
    add("--seed", type=int, default=0)
    add("--output", type=Path, default=Path("model"), help="the folder to write to")
    add("--overwrite", action="store_true", help="replace the model in that folder")
    learn.set_defaults(handler=_learn)


def add_predict(commands: Commands) -> None:
    """Add the command `predict`."""
    predict = commands.add_parser("predict", help="predict a table by a model that learn wrote")
    add = predict.add_argument
    add("model", type=Path, help="the folder that learn wrote")
    add("table", type=Path, help="a file of CSV or Parquet with the same columns")
    add("--output", type=Path, help="the file to write; by default beside the table")
    add("--coverage", type=float, help="of the intervals of numbers; by default 0.95")
    add("--overwrite", action="store_true", help="replace the file to write, if it is there")
    predict.set_defaults(handler=_predict)


def _learn(options: argparse.Namespace) -> int:
    """Write the model and a page on it to a folder, and print the summary."""
    from .prepare import prepare

    path, output = options.table, options.output
    require_extra("pandas", "jinja2", "matplotlib")
    _require_free(output, overwrite=options.overwrite)
    require_file(path)
    require_writable(output)
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"seed is {options.seed}; it must be at least 0 and below 2^32.")
    names = ("predictor", "task", "held_out", "split", "drop", "keep")
    with progress.spoken(1, sys.stderr):
        prepared = prepare(path, options.target, **{each: vars(options)[each] for each in names})
    with loading():
        from .learn import learn_prepared
        from .model_page import write_page
    with progress.spoken(1, sys.stderr):
        chosen = {each: vars(options)[each] for each in ("effort", "seed", "loss")}
        outcome = learn_prepared(prepared, **chosen)
        progress.now(f"writing {output}")
        outcome.model.save(output, overwrite=options.overwrite)
    print(outcome, flush=True)
    with progress.spoken(1, sys.stderr):
        progress.now("drawing the page on it")
        write_page(outcome, path, output / "report.html")
    print(f"\nThe page on it is {output / 'report.html'}. To predict other rows:")
    print(f"  gpflow-gvi predict {output} NEW.csv")
    return 0


def _require_free(folder: Path, *, overwrite: bool) -> None:
    """Raise if a folder holds anything but a model that may be replaced."""
    is_ours = (folder / "structure.json").exists()
    is_used = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    if is_used and not (is_ours and overwrite):
        remedy = "pass --overwrite to replace it, or name" if is_ours else "name"
        raise FileExistsError(f"{folder} is in use; {remedy} another folder by --output.")


def _predict(options: argparse.Namespace) -> int:
    """Write the predictions of a file, and print a line on them."""
    from .table_files import endings

    path, output, coverage = options.table, options.output, options.coverage
    require_extra("pandas")
    require_file(path)
    end = len(path.name) - len("".join(endings(output or path)))
    if output is None:
        output = path.with_name(f"{path.name[:end]}_predicted{path.name[end:]}")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent} is no folder. Make it, or give another --output.")
    if not options.overwrite:
        require_new(output)
    if coverage is not None and not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage is {coverage}; it must lie between 0 and 1, as 0.95 does.")
    with loading():
        from .model import predict_file
    with progress.spoken(1, sys.stderr):
        count = predict_file(
            options.model, path, output, coverage=coverage, overwrite=options.overwrite
        )
    print(f"{count:,} rows: {output}")
    return 0

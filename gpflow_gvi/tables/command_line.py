"""The commands `learn` and `predict` of the command line: their options, and errors in a line."""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[Any]"
Handler: TypeAlias = "Callable[[argparse.Namespace], int]"

_REPORTED = (ArithmeticError, ImportError, OSError, RuntimeError, TypeError, ValueError)


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


def _of_table(command: Handler) -> Handler:
    """Let a command on tables say in a line what is wrong with its input, and what to beware of."""

    @functools.wraps(command)
    def checked(options: argparse.Namespace) -> int:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = _in_lines()
                return command(options)
        except KeyboardInterrupt:
            print("Interrupted; nothing was written.", file=sys.stderr)
            return 128 + signal.SIGINT
        except _REPORTED as error:
            print(f"{options.command}: {error}", file=sys.stderr)
            return 2

    return checked


def _in_lines() -> Callable[..., None]:
    """Return a function that prints each warning once, without the place in the code."""
    said: set[str] = set()

    def say(message: Any, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            print(f"\nwarning: {message}", file=sys.stderr)

    return say


@_of_table
def _learn(options: argparse.Namespace) -> int:
    from . import commands

    own = ("table", "target", "output", "command", "handler")
    chosen = {name: value for name, value in vars(options).items() if name not in own}
    print(commands.learn(options.table, options.target, options.output, **chosen))
    print(f"\nThe page on it is {options.output / 'report.html'}. To predict other rows:")
    print(f"  gpflow-gvi predict {options.output} NEW.csv")
    return 0


@_of_table
def _predict(options: argparse.Namespace) -> int:
    from . import commands

    names = ("model", "table", "output", "coverage")
    chosen = [getattr(options, name) for name in names]
    print(commands.predict(*chosen, overwrite=options.overwrite))
    return 0

"""The command line: `gpflow-gvi` and `python -m gpflow_gvi`."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import __version__
from ._core import progress
from ._core.quiet import loading
from .tables.command_line import Commands, add_learn, add_predict

_REPORTED = (ArithmeticError, ImportError, OSError, RuntimeError, TypeError, ValueError)
"""The errors that are said in a line."""

Handler = Callable[[argparse.Namespace], int]
"""Executes a command, and returns its exit status."""

_DATA_DIR = "data sets; by default what GPFLOW_GVI_DATA says"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="gpflow-gvi", description="Generalised variational inference for Gaussian processes."
    )
    parser.add_argument("--version", action="version", version=f"gpflow-gvi {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    of_tables, of_experiments = (add_learn, add_predict), (_add_run, _add_sweep, _add_report)
    for add in (_add_demo, *of_tables, *of_experiments, _add_benchmark):
        add(commands)
    _command(commands, "schema", _schema, help="print the JSON Schema of an experiment's file")
    options = parser.parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _in_lines()
        return _status(options)


def _status(options: argparse.Namespace) -> int:
    """Run the command; an error is said in a line, without a traceback."""
    status = 2
    try:
        status = options.handler(options)
    except KeyboardInterrupt:
        print("Interrupted; what is finished is kept.", file=sys.stderr)
        status = 128 + signal.SIGINT
    except ModuleNotFoundError as error:
        remedy = f"which {options.command} needs: pip install 'gpflow-gvi[experiments]'"
        print(f"{error.name} is not installed, {remedy}", file=sys.stderr)
    except _REPORTED as error:
        print(f"{options.command}: {error}", file=sys.stderr)
    return status


def _in_lines() -> Callable[..., None]:
    """Return a function that prints each warning once, without the place in the code."""
    said: set[str] = set()

    def say(message: Any, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            print(f"\nwarning: {message}", file=sys.stderr)

    return say


def _command(commands: Commands, name: str, handler: Handler, **options: Any) -> Any:
    """Add a command, and return the function that adds its arguments."""
    parser = commands.add_parser(name, **options)
    parser.set_defaults(handler=handler)
    return parser.add_argument


def _add_demo(commands: Commands) -> None:
    add = _command(commands, "demo", _demo, help="four tasks beside rivals: a table and a picture")
    add("--output", type=Path, default=Path("demo.png"), help="where the picture goes")
    add("--seed", type=int, default=0, help="seed of the data and of the fits")


def _add_run(commands: Commands) -> None:
    add = _command(commands, "run", _run, help="run the experiment that a YAML file describes")
    add("config", type=Path, help="the file")
    add("--folder", type=Path, default=Path("runs"), help="where the runs go")
    add("--force", action="store_true", help="run again what is finished")
    add("--dry-run", action="store_true", help="print what would be run, and where")
    add("--data-dir", type=Path, help=_DATA_DIR)
    add("--no-figures", action="store_true", help="draw nothing")
    add("--tensorboard", action="store_true", help="write events for TensorBoard")


def _add_sweep(commands: Commands) -> None:
    sweep = commands.add_parser("sweep", help="run all experiments that a YAML file describes")
    add = sweep.add_argument
    add("config", type=Path, help="the file: a base, and axes")
    add("--folder", type=Path, help="where the runs go; by default runs/<its name>")
    add("--dry-run", action="store_true", help="count and list the runs")
    add("--sample", type=int, metavar="N", help="execute N of the runs, drawn at random")
    add("--retry", action="store_true", help="execute failed runs again")
    add("--run-timeout", type=float, metavar="SECONDS", help="after which a run fails; 6 hours")
    add("--figures", action="store_true", help="draw, for each run that is executed")
    add("--data-dir", type=Path, help=_DATA_DIR)
    add("--worker-memory", type=float, metavar="MB", help="above which a process is restarted")
    where = sweep.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, help="processes; by default one for each core")
    where.add_argument("--cluster", choices=("sge", "slurm"), help="submit workers as its jobs")
    where.add_argument("--scheduler", help="of a Dask cluster, as tcp://host:8786")
    add("--jobs", type=int, default=1, help="number of jobs for --cluster")
    of_job = "argument of dask-jobqueue for --cluster, as queue=all.q, walltime=12:00:00"
    add("--job", type=_assignment, action="append", default=[], metavar="NAME=VALUE", help=of_job)
    sweep.set_defaults(handler=_sweep)


def _add_report(commands: Commands) -> None:
    add = _command(commands, "report", _report, help="write a page on the runs in a folder")
    add("folder", type=Path, help="that of a sweep, or of runs")
    add("--output", type=Path, help="the page; by default FOLDER/report.html")
    add("--score", default="nll", help="the metric that ranks")
    of_repetitions = "axes of repetitions; by default split.index seed data.seed"
    add("--over", nargs="+", metavar="AXIS", help=of_repetitions)


def _add_benchmark(commands: Commands) -> None:
    passed_on = {"add_help": False, "prefix_chars": "+"}  # with options, --help too
    text = "measure beside other libraries"
    add = _command(commands, "benchmark", _benchmark, help=text, **passed_on)
    add("arguments", nargs=argparse.REMAINDER, help="of python -m benchmarks")


def _demo(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    with loading():
        from . import demo as demonstration

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")  # at once, as two tasks say theirs at a time

    print(demonstration.run(options.output, seed=options.seed, say=say))
    more = demonstration.NEXT_HERE if Path("examples", "quick_start.py").exists() else ""
    print(f"\n{time.perf_counter() - start:.0f} s. What to type next:\n{demonstration.NEXT}{more}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from .experiments import read
    from .experiments.run_folder import RunFolder, name_of

    experiment = read(options.config)
    folder = options.folder / name_of(experiment)
    if options.dry_run:
        print(f"# {folder}\n{experiment.as_yaml()}", end="")
        return 0
    data = experiment.data.digest(options.data_dir)
    if options.force or not RunFolder(folder).is_of(data):  # else there is no need of TensorFlow
        with loading():
            from .experiments.run import run
        with progress.spoken(1, sys.stderr):
            run(
                experiment,
                options.folder,
                force=options.force,
                data_dir=options.data_dir,
                pictures=not options.no_figures,
                tensorboard=options.tensorboard,
            )
    elif options.tensorboard and not (folder / "tensorboard").exists():
        raise ValueError(f"--tensorboard has no effect: {folder} is finished. Pass --force, too.")
    else:
        print(
            f"{folder} is finished and keeps what it has; --force runs it again.", file=sys.stderr
        )
    print((folder / "metrics.json").read_text("utf-8"), end="")
    print(folder)
    return 0


def _sweep(options: argparse.Namespace) -> int:
    from .experiments.sweep import read_sweep, sample

    if options.figures and importlib.util.find_spec("matplotlib") is None:
        raise ImportError("--figures needs matplotlib: pip install 'gpflow-gvi[plots]'")
    runs = read_sweep(options.config)
    if options.sample is not None:
        runs = sample(runs, options.sample)
    if options.dry_run:
        for run in runs:
            axes = ", ".join(f"{name}={level}" for name, level in run.axes.items())
            print(f"{run.name}  {axes}")
        print(f"{len(runs)} runs")
        return 0
    folder = options.folder or Path("runs") / options.config.stem
    print(f"{len(runs)} runs, to {folder}", file=sys.stderr, flush=True)
    from .experiments.run_all import Limits, run_all

    given = {"megabytes": options.worker_memory, "seconds": options.run_timeout}
    summary = run_all(
        runs,
        folder,
        _workers(options),
        retry=options.retry,
        limits=Limits(**{name: value for name, value in given.items() if value is not None}),
        data_dir=options.data_dir,
        pictures=options.figures,
    )
    print(f"{summary.done} runs done, {summary.failed} failed: {folder}")
    if summary.failed:
        print("The same command with --retry executes the failed runs again.", file=sys.stderr)
    return 1 if summary.failed else 0


def _workers(options: argparse.Namespace) -> Callable[[], Any]:
    """Return the function that connects to the workers of the options."""
    from .experiments import clients

    if options.cluster is not None:
        of_jobs = options.cluster, options.jobs, dict(options.job)
        return functools.partial(clients.job_queue_client, *of_jobs)
    if options.jobs != 1 or options.job:
        raise ValueError("--jobs and --job are for --cluster sge or slurm; name one, or omit them.")
    if options.scheduler is not None:
        from distributed import Client

        return functools.partial(Client, options.scheduler, set_as_default=False)
    return functools.partial(clients.local_client, options.workers)


def _assignment(text: str) -> tuple[str, Any]:
    """Return the two parts of NAME=VALUE; the value is JSON, or else text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE, as queue=all.q")
    with contextlib.suppress(ValueError):
        return name, json.loads(value)
    return name, value


def _report(options: argparse.Namespace) -> int:
    from .experiments.report import report

    print(report(options.folder, output=options.output, score=options.score, over=options.over))
    return 0


def _benchmark(options: argparse.Namespace) -> int:
    if not Path("benchmarks", "__main__.py").exists():
        raise FileNotFoundError(
            f"{Path.cwd()} has no folder benchmarks, which is not installed with the package. Run "
            "this in a copy of the repository."
        )
    threads = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(threads, "1")}
    command = [sys.executable, "-m", "benchmarks", *options.arguments]
    # No shell, this interpreter, and arguments that the user has typed.
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603


def _schema(options: argparse.Namespace) -> int:
    from .experiments import Experiment

    print(json.dumps(Experiment.model_json_schema(), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())

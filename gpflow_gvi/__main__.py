"""The command line: `gpflow-gvi` and `python -m gpflow_gvi`."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="gpflow-gvi",
        description="Generalised variational inference for Gaussian processes.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="fit a curve with a gap; print a table, draw a picture")
    demo.add_argument(
        "--output", type=Path, default=Path("demo.png"), help="where the picture goes"
    )
    demo.add_argument("--seed", type=int, default=0, help="seed of data and network")
    demo.add_argument("--iterations", type=int, default=1000, help="at most so many per model")
    demo.set_defaults(handler=_demo)
    run = commands.add_parser("run", help="run the experiment that a YAML file describes")
    run.add_argument("config", type=Path, help="the file")
    run.add_argument("--folder", type=Path, default=Path("runs"), help="where the runs go")
    run.add_argument("--force", action="store_true", help="run again what is finished")
    run.add_argument("--dry-run", action="store_true", help="print what would be run, and where")
    run.add_argument(
        "--data-dir", type=Path, help="data sets; by default what GPFLOW_GVI_DATA says"
    )
    run.add_argument("--data", help="YAML of the part `data` to take instead, as: yacht")
    run.add_argument("--regulariser", type=Path, help="the file to take data and regulariser from")
    run.add_argument("--no-figures", action="store_true", help="draw nothing")
    run.add_argument("--tensorboard", action="store_true", help="write events for TensorBoard")
    run.set_defaults(handler=_run)
    sweep = commands.add_parser("sweep", help="run all experiments that a YAML file describes")
    sweep.add_argument("config", type=Path, help="the file: a base, and axes")
    sweep.add_argument("--folder", type=Path, help="where the runs go; by default runs/<its name>")
    sweep.add_argument("--dry-run", action="store_true", help="count and list the runs")
    sweep.add_argument("--workers", type=int, help="processes; by default one for each core")
    sweep.add_argument(
        "--worker-memory", type=float, help="megabytes at which a process is replaced by a new one"
    )
    sweep.add_argument("--scheduler", help="a Dask cluster to use instead, as tcp://host:8786")
    sweep.add_argument("--sample", type=int, help="do so many of the runs, drawn at random")
    sweep.add_argument("--retry", action="store_true", help="do failed runs again")
    sweep.add_argument("--figures", action="store_true", help="draw, for each run")
    sweep.add_argument(
        "--data-dir", type=Path, help="data sets; by default what GPFLOW_GVI_DATA says"
    )
    sweep.set_defaults(handler=_sweep)
    launch = commands.add_parser("launch", help="run a program as workers that train one model")
    launch.add_argument("--workers", type=int, default=2, help="how many, on this machine")
    launch.add_argument(
        "--cluster", default="", help="instead, all workers of several machines: host:port,..."
    )
    launch.add_argument("--index", type=int, default=0, help="which of these is this one, from 0")
    launch.add_argument("--restarts", type=int, default=3, help="start again at most so often")
    launch.add_argument("program", nargs=argparse.REMAINDER, help="a Python file, its arguments")
    launch.set_defaults(handler=_launch)
    benchmark = commands.add_parser(
        "benchmark",
        help="measure beside other libraries",
        add_help=False,
        prefix_chars="+",  # so that options, --help too, are passed on
    )
    benchmark.add_argument("arguments", nargs=argparse.REMAINDER, help="of python -m benchmarks")
    benchmark.set_defaults(handler=_benchmark)
    schema = commands.add_parser("schema", help="print the JSON Schema of an experiment's file")
    schema.set_defaults(handler=_schema)
    report = commands.add_parser("report", help="write a page on the runs in a folder")
    report.add_argument("folder", type=Path, help="that of a sweep, or of runs")
    report.add_argument("--output", type=Path, help="the page; by default FOLDER/report.html")
    report.add_argument("--score", default="nll", help="the metric that ranks")
    report.add_argument(
        "--over",
        nargs="+",
        metavar="AXIS",
        help="what repeats a setting; by default split.index seed data.seed",
    )
    report.set_defaults(handler=_report)
    options = parser.parse_args(arguments)
    status: int = options.handler(options)
    return status


def _demo(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    with _quiet_start():
        from . import demo as demonstration

    print(demonstration.run(options.output, seed=options.seed, iterations=options.iterations))
    print(f"\nThe picture is {options.output.resolve()} ({time.perf_counter() - start:.0f} s).")
    return 0


def _run(options: argparse.Namespace) -> int:
    return _checked(_checked_run, options)


def _sweep(options: argparse.Namespace) -> int:
    return _checked(_checked_sweep, options)


def _checked(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Carry out a command; what goes wrong is told in a line, without a traceback."""
    from .experiments.reading import ConfigError

    try:
        return command(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except (ArithmeticError, ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            print("Finished runs are intact; make room and run the same again.", file=sys.stderr)
        return 1


def _checked_run(options: argparse.Namespace) -> int:
    from .experiments import read
    from .experiments.folder import RunFolder, name_of

    experiment = read(options.config, data=options.data, regulariser=options.regulariser)
    if options.dry_run:
        import yaml

        print(f"# {options.folder / name_of(experiment)}")
        print(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False), end="")
        return 0
    folder = options.folder / name_of(experiment)
    if options.force or not RunFolder(folder).is_complete:  # else there is no need of TensorFlow
        with _quiet_start():
            from .experiments.run import run
        run(
            experiment,
            options.folder,
            force=options.force,
            data_dir=options.data_dir,
            pictures=not options.no_figures,
            tensorboard=options.tensorboard,
        )
    print((folder / "metrics.json").read_text("utf-8"), end="")
    print(folder)
    return 0


def _checked_sweep(options: argparse.Namespace) -> int:
    from .experiments.crew import MOST_MEMORY, Crew
    from .experiments.folder import name_of
    from .experiments.run_all import Scheduler, cores, run_all
    from .experiments.sweep import read_sweep, sample

    points = read_sweep(options.config)
    if options.sample is not None:
        points = sample(points, options.sample)
    if options.dry_run:
        for point in points:
            axes = ", ".join(f"{name}={level}" for name, level in point.axes.items())
            print(f"{name_of(point.experiment)}  {axes}")
        print(f"{len(points)} runs")
        return 0
    folder = options.folder or Path("runs") / options.config.stem
    scheduler: Scheduler
    if options.scheduler is None:
        scheduler = Crew(options.workers or cores(), options.worker_memory or MOST_MEMORY)
    else:
        from .experiments.cluster import Cluster

        scheduler = Cluster(options.scheduler)
    summary = run_all(
        points,
        folder,
        scheduler,
        retry=options.retry,
        data_dir=options.data_dir,
        pictures=options.figures,
    )
    print(f"{summary.done} runs done, {summary.failed} failed: {folder}")
    return 1 if summary.failed else 0


def _report(options: argparse.Namespace) -> int:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # it may draw what a model predicts
    from .experiments.report import report

    try:
        print(report(options.folder, output=options.output, score=options.score, over=options.over))
    except (OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _launch(options: argparse.Namespace) -> int:
    from .launch import launch

    # An end by SIGTERM is an exit, so that the workers are ended as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return launch(
            options.program,
            workers=options.workers,
            cluster=options.cluster.split(",") if options.cluster else (),
            index=options.index,
            restarts=options.restarts,
        )
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


def _benchmark(options: argparse.Namespace) -> int:
    if not Path("benchmarks", "__main__.py").exists():
        print(
            f"{Path.cwd()} has no folder benchmarks, which is not installed with the package. Run "
            "this in a copy of the repository.",
            file=sys.stderr,
        )
        return 2
    threads = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(threads, "1")}
    command = [sys.executable, "-m", "benchmarks", *options.arguments]
    return subprocess.run(command, env=environment, check=False).returncode


def _schema(options: argparse.Namespace) -> int:
    from .experiments import Experiment

    print(json.dumps(Experiment.model_json_schema(), indent=2, ensure_ascii=False))
    return 0


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep what TensorFlow writes to stderr while it loads out of a short answer.

    It does so from C++ and before it reads its own log level, hence the file descriptor.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    sys.exit(main())

"""All runs of a sweep on the workers of Dask, wherever these are, continuing an earlier attempt.

A run writes its folder to disk and returns a small record: a worker that dies loses only the run
that it was executing.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from .clients import local_client, require_positive
from .run_folder import Record, Results, RunFolder, done, failed, held
from .sweep import PlannedRun

logger = logging.getLogger("gpflow_gvi")

Execute = Callable[[PlannedRun], Record]
Connect = Callable[[], contextlib.AbstractContextManager[Any]]
"""Returns a context manager with a client, as `Client` of `distributed` itself is."""


class Summary(NamedTuple):
    """The number of runs of a sweep by their status."""

    done: int
    failed: int


class Limits(NamedTuple):
    """When the process of a worker is restarted."""

    megabytes: float = 2500.0
    """Before its next run, if it has grown beyond this: each model that TensorFlow has traced stays
    in memory."""
    seconds: float = 6 * 3600.0
    """Within a run that takes longer."""


def run_all(
    runs: Iterable[PlannedRun],
    folder: str | Path,
    connect: Connect = local_client,
    *,
    retry: bool = False,
    limits: Limits | None = None,
    data_dir: Path | None = None,
    pictures: bool = False,
) -> Summary:
    """Execute the runs of a sweep that are not done yet, and write their results to the folder.

    :param connect: returns a context manager with a client of Dask; by default one with a process
        for each core of this machine. It is called when there is something to run.
    :param retry: whether runs that have failed before are executed again.
    :param pictures: whether to draw the runs that are executed.
    """
    limits = limits or Limits()
    require_positive("limits.megabytes (--worker-memory)", limits.megabytes)
    require_positive("limits.seconds (--run-timeout)", limits.seconds)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder / "sweep.lock"):
        results = Results(folder)
        records, wrong = results.read()
        for line in wrong:
            logger.warning("%s", line)
        named = {run.name: run for run in runs}
        _require_same_data(folder, [named[name] for name in named.keys() & records], data_dir)
        _relabel(results, records, named)
        if pictures:
            _tell_of_undrawn(folder, [name for name in named if name in records], records)
        missing = [
            run
            for name, run in named.items()
            if name not in records or (retry and records[name]["status"] == "failed")
        ]
        run_one = functools.partial(execute, folder=folder, data_dir=data_dir, pictures=pictures)
        done_before = len(named) - len(missing)
        # Without a terminal a line is enough now and then.
        seconds = 0.1 if sys.stderr.isatty() else 60.0
        with tqdm(total=len(named), initial=done_before, unit="run", mininterval=seconds) as bar:
            for record in _records(connect, run_one, missing, limits):
                results.add(record)
                records[record["name"]] = record
                if record["status"] == "failed":
                    last = record["error"].strip().splitlines()[-1]
                    bar.write(f"{record['name']} failed: {last}", file=sys.stderr)
                bar.update()
        # A table that changed in the meantime has given its runs other names.
        num_done = sum(name in records and records[name]["status"] == "done" for name in named)
        return Summary(num_done, len(named) - num_done)


def _require_same_data(folder: Path, runs: Iterable[PlannedRun], data_dir: Path | None) -> None:
    """Raise if a finished run is of other data than those that are there now."""
    digests: dict[Any, str] = {}
    for run in runs:
        data = run.experiment.data
        if data not in digests:
            digests[data] = data.digest(data_dir)
        RunFolder(folder / run.name).is_of(digests[data])


def _relabel(results: Results, records: dict[str, Record], named: Mapping[str, PlannedRun]) -> None:
    """Give results the labels that their runs have now, and tell of those of other runs."""
    renamed = {
        name: Record(**records[name] | {"axes": run.axes})
        for name, run in named.items()
        if name in records and records[name].get("axes") != run.axes
    }
    if renamed:
        results.add(*renamed.values())
    records.update(renamed)
    if others := records.keys() - named.keys():
        logger.warning(
            "%s has %d results of other runs than these, which a report shows, too; choose another "
            "--folder to keep them apart.",
            *(results.path, len(others)),
        )


def _tell_of_undrawn(folder: Path, names: Iterable[str], records: dict[str, Record]) -> None:
    """Tell that runs which are done stay as they are, if some of them have no figures."""
    done_before = [folder / name for name in names if records[name]["status"] == "done"]
    undrawn = [path for path in done_before if not any(path.glob("*.png"))]
    if undrawn:
        logger.warning(
            "--figures draws no run that is finished, and %d of these have no figures. To run one "
            "again: gpflow-gvi run %s --folder %s --force",
            *(len(undrawn), undrawn[0] / "config.yaml", folder),
        )


def _records(
    connect: Connect, execute: Execute, runs: Sequence[PlannedRun], limits: Limits
) -> Iterator[Record]:
    """Execute runs on workers, and yield the record of each when it is done."""
    if not runs:
        return
    from distributed import KilledWorker, as_completed

    with connect() as client:
        in_worker = functools.partial(_in_worker, execute, limits)
        futures = client.map(in_worker, runs, pure=False, batch_size=500)
        left = dict(zip(futures, runs, strict=True))
        del futures  # a result that is held here cannot leave a worker that restarts
        try:
            for future in as_completed(left, loop=client.loop):
                run = left.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                elif isinstance(error, KilledWorker):
                    yield failed(run, _DIED.format(limits.seconds))
                else:  # the code to execute could not be loaded
                    yield failed(run, "".join(traceback.format_exception(error)))
        finally:
            client.cancel(list(left))


_DIED = (
    "The process of the run died each time that it was tried: it was killed, as where memory is "
    "short, or took longer than {:g} seconds. To try again pass --retry, a larger --run-timeout."
)

_one_run = threading.Lock()
_executed: list[str] = []
"""The names of the runs that this process has executed."""


def _in_worker(execute: Execute, limits: Limits, run: PlannedRun) -> Record:
    """Execute a run on a worker, where several threads must take turns."""
    from distributed import Reschedule, get_worker

    worker = get_worker()
    with _one_run:
        if _executed and worker.monitor.get_process_memory() > limits.megabytes * 2**20:
            worker.loop.add_callback(worker.close_gracefully, restart=True)
            time.sleep(1.0)  # until it takes no more
            raise Reschedule
        _executed.append(run.name)
        watch = threading.Timer(limits.seconds, os._exit, [1])
        watch.daemon = True
        watch.start()
        try:
            return execute(run)
        finally:
            watch.cancel()


def execute(run: PlannedRun, *, folder: Path, **options: Any) -> Record:
    """Execute a run; return its record, with the traceback if it fails."""
    from . import run as runs

    try:
        path = runs.run(run.experiment, folder, share=True, **options)
        return done(path, run.data, run.axes)
    except Exception:  # whatever it is, it is recorded, and the other runs go on
        return failed(run, traceback.format_exc())

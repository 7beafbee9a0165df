"""All runs of a sweep: on this machine or on a cluster, continuing an earlier attempt."""

from __future__ import annotations

import errno
import functools
import logging
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tqdm import tqdm

from .engine import Engine
from .results import SWEEP_NAME, Record, Results, done, failed
from .run_folder import held, write_json
from .sweep import PlannedRun

if TYPE_CHECKING:
    from .reuse import RunCache

logger = logging.getLogger("gpflow_gvi")

BATCH = 32
"""The maximal number of runs that a worker receives at once."""


class Summary(NamedTuple):
    """The number of runs of a sweep by their status."""

    done: int
    failed: int


def run_all(
    runs: Iterable[PlannedRun],
    folder: str | Path,
    engine: Engine | None = None,
    *,
    name: str | None = None,
    retry: bool = False,
    data_dir: Path | None = None,
    pictures: bool = False,
) -> Summary:
    """Execute the runs of a sweep that are not done yet, and write their results to the folder.

    :param runs: the runs, as `read_sweep` returns them.
    :param folder: where the folders of runs and the results go.
    :param engine: what executes them; by default a process for each core of this machine.
    :param name: the name of the sweep, the title of its report; by default the folder's.
    :param retry: whether runs that have failed before are executed again; those for which the disk
        was full are in any case.
    :param data_dir: the folder with data sets.
    :param pictures: whether to draw, for each run.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    engine = engine or Engine()
    with held(folder / "sweep.lock"):
        if name is not None:
            write_json(folder / SWEEP_NAME, {"name": name})
        results = Results(folder)
        records, wrong = results.read()
        for line in wrong:
            logger.warning("%s", line)
        named = {run.name: run for run in runs}
        missing = [
            run
            for name, run in sorted(named.items(), key=_place)
            if name not in records or _is_due(records[name], retry=retry)
        ]
        batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
        run_one = functools.partial(execute, folder=folder, data_dir=data_dir, pictures=pictures)
        done_before = len(named) - len(missing)
        # Without a terminal a line is enough now and then.
        seconds = 0.1 if sys.stderr.isatty() else 60.0
        with tqdm(total=len(named), initial=done_before, unit="run", mininterval=seconds) as bar:
            for record in engine.records(run_one, batches):
                results.add(record)
                records[record["name"]] = record
                if record["status"] == "failed":
                    last = record["error"].strip().splitlines()[-1]
                    bar.write(f"{record['name']} failed: {last}", file=sys.stderr)
                bar.update()
        failures = sum(records[name]["status"] == "failed" for name in named)
        return Summary(len(named) - failures, failures)


def _is_due(record: Record, *, retry: bool) -> bool:
    """Return True if a run that has a record is executed again."""
    return record["status"] == "failed" and (retry or bool(record.get("disk_full")))


def _place(item: tuple[str, PlannedRun]) -> tuple[str, str]:
    """Return a key of order by which runs with the same graph are neighbours."""
    name, run = item
    return run.experiment.graph_settings(), name


def execute(run: PlannedRun, *, folder: Path, data_dir: Path | None, pictures: bool) -> Record:
    """Execute a run; return its record, with the traceback if it fails."""
    from . import run as runs

    try:
        path = runs.run(
            run.experiment, folder, data_dir=data_dir, pictures=pictures, cache=_cache()
        )
        return done(path, run.data, run.axes)
    except Exception as error:  # whatever it is, it is recorded, and the other runs go on
        return failed(run, traceback.format_exc(), disk_full=_is_of_a_full_disk(error))


@functools.cache
def _cache() -> RunCache:
    """Return the graphs and the fitted regularisers that this process keeps between runs."""
    from .reuse import RunCache

    return RunCache()


def _is_of_a_full_disk(error: BaseException | None) -> bool:
    """Return True if an error, or one that led to it, says that the disk was full."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if os.strerror(errno.ENOSPC) in str(error):  # of libraries with errors of their own
            return True
        error = error.__cause__ or error.__context__
    return False

"""All runs of a sweep: on this machine or on a cluster, continuing an earlier attempt."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
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
    :param name: of the sweep, the title of its report; by default the folder's.
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
            for name, run in sorted(named.items(), key=_structure)
            if name not in records or _is_due(records[name], retry=retry)
        ]
        batches = [missing[start : start + BATCH] for start in range(0, len(missing), BATCH)]
        run_one = functools.partial(execute, folder=folder, data_dir=data_dir, pictures=pictures)
        progress = _Progress(len(named), len(named) - len(missing))
        with contextlib.closing(progress.bar):
            for record in engine.records(run_one, batches):
                results.add(record)
                records[record["name"]] = record
                progress.add(record)
        failures = sum(records[name]["status"] == "failed" for name in named)
        return Summary(len(named) - failures, failures)


def _is_due(record: Record, *, retry: bool) -> bool:
    """Return whether a run that has a record is executed again."""
    return record["status"] == "failed" and (retry or bool(record.get("disk_full")))


def _structure(item: tuple[str, PlannedRun]) -> tuple[str, str]:
    """Return a key of order by which runs with the same graph are neighbours."""
    name, run = item
    return run.experiment.model_dump_json(exclude={"data", "split", "seed"}), name


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
    """Return whether an error, or one that led to it, is that the disk was full."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if os.strerror(errno.ENOSPC) in str(error):  # of libraries with errors of their own
            return True
        error = error.__cause__ or error.__context__
    return False


class _Progress:
    """The runs done, the failures and the time left: a bar, or without a terminal some lines."""

    def __init__(self, total: int, done: int) -> None:
        self.terminal = sys.stderr.isatty()
        self.failures = 0
        self.every = max(1, total // 20)
        self.bar = tqdm(
            total=total,
            initial=done,
            unit="run",
            dynamic_ncols=self.terminal,
            file=sys.stderr if self.terminal else io.StringIO(),
        )
        if done:
            self._write(f"{done} of {total} runs were done before.")

    def add(self, record: Record) -> None:
        """Count a record."""
        self.bar.update()
        if record["status"] == "failed":
            self.failures += 1
            self._write(f"{record['name']} failed: {record['error'].strip().splitlines()[-1]}")
        self.bar.set_postfix(failed=self.failures, refresh=self.terminal)
        if not self.terminal and (self.bar.n % self.every == 0 or self.bar.n == self.bar.total):
            self._write(str(self.bar))

    def _write(self, text: str) -> None:
        self.bar.write(text, file=sys.stderr)

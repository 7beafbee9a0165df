"""All runs of a sweep: on this machine or on a cluster, continuing an earlier attempt."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from .engine import Engine
from .results import SWEEP_NAME, Record, Results
from .run_folder import held, name_of, write_json
from .sweep import PlannedRun
from .tasks import Task

logger = logging.getLogger("gpflow_gvi")

BATCH = 32
"""The maximal number of tasks that a worker receives at once."""


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
        named = {name_of(run.experiment): run for run in runs}
        tasks = [
            Task(
                name=name,
                data=run.experiment.data.label,
                axes=run.axes,
                settings=run.experiment.model_dump(mode="json"),
                folder=str(folder),
                data_dir=None if data_dir is None else str(data_dir),
                pictures=pictures,
            )
            for name, run in sorted(named.items(), key=_structure)
            if name not in records or _is_due(records[name], retry=retry)
        ]
        batches = [tasks[start : start + BATCH] for start in range(0, len(tasks), BATCH)]
        progress = _Progress(len(named), len(named) - len(tasks))
        with contextlib.closing(progress.bar):
            for record in engine.records(batches):
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

"""All runs of a sweep: on this machine or on a cluster, and from where an earlier attempt was."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from .folder import held, name_of
from .results import Record, Results
from .sweep import Point
from .tasks import Task

logger = logging.getLogger("gpflow_gvi")

BATCH = 32
"""At most so many tasks are given away at once."""


class Scheduler(Protocol):
    """What does tasks in other processes."""

    def records(self, batches: list[list[Task]]) -> Iterator[Record]:
        """Do all tasks, and yield the record of each when it is done.

        :param batches: tasks that are better done by the same process, one after the other.
        """
        ...


class Summary(NamedTuple):
    """How a sweep went."""

    done: int
    failed: int


def run_all(
    points: Iterable[Point],
    folder: str | Path,
    scheduler: Scheduler | None = None,
    *,
    retry: bool = False,
    data_dir: Path | None = None,
    pictures: bool = False,
) -> Summary:
    """Do the runs of a sweep that are not done yet, and write the result of each to the folder.

    :param points: the runs, as `read_sweep` returns them.
    :param folder: where the folders of runs and the results go.
    :param scheduler: what does them; a process for each core of this machine if not given.
    :param retry: whether runs that have failed before are done again.
    :param data_dir: the folder with data sets.
    :param pictures: whether to draw, for each run.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if scheduler is None:
        from .crew import Crew

        scheduler = Crew(cores())
    with held(folder / "sweep.lock"):
        results = Results(folder)
        records, wrong = results.read()
        for line in wrong:
            logger.warning("%s", line)
        names, ordered = _in_order(points)
        tasks = [
            Task(
                name=name,
                data=point.experiment.data.label,
                axes=point.axes,
                settings=point.experiment.model_dump(mode="json"),
                folder=str(folder),
                data_dir=None if data_dir is None else str(data_dir),
                pictures=pictures,
            )
            for name, point in ordered
            if name not in records or (retry and records[name]["status"] == "failed")
        ]
        batches = [tasks[start : start + BATCH] for start in range(0, len(tasks), BATCH)]
        progress = _Progress(len(names), len(names) - len(tasks))
        for record in scheduler.records(batches):
            results.add(record)
            progress.tell(record)
        records, _ = results.read()
        failures = sum(records[name]["status"] == "failed" for name in names if name in records)
        return Summary(len(names) - failures, failures)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_order(points: Iterable[Point]) -> tuple[list[str], list[tuple[str, Point]]]:
    """Return names, and runs in an order in which those with the same graph are neighbours."""
    named = {name_of(point.experiment): point for point in points}

    def kind(item: tuple[str, Point]) -> tuple[str, str]:
        experiment = item[1].experiment
        numbers = {"data", "split", "seed"}
        settings = experiment.model_dump_json(exclude=numbers)
        return settings, item[0]

    return list(named), sorted(named.items(), key=kind)


class _Progress:
    """A bar on the terminal; elsewhere a line for each twentieth part."""

    def __init__(self, total: int, before: int) -> None:
        self.total, self.before, self.count, self.failed = total, before, 0, 0
        self.start = time.monotonic()
        if before:
            self._say(f"{before} of {total} runs were done before.")

    def tell(self, record: Record) -> None:
        """Take a record into account."""
        self.count += 1
        if record["status"] == "failed":
            self.failed += 1
            self._say(f"{record['name']} failed: {record['error'].strip().splitlines()[-1]}")
        done, each = self.before + self.count, (time.monotonic() - self.start) / self.count
        left = each * (self.total - done)
        text = f"{done}/{self.total} runs, {self.failed} failed, {each:.1f} s each, "
        text += f"{left / 60:.0f} min left"
        if sys.stderr.isatty():
            bar = "#" * round(30 * done / self.total)
            sys.stderr.write(f"\r[{bar:<30}] {text}\033[K{'' if done < self.total else chr(10)}")
            sys.stderr.flush()
        elif done == self.total or self.count % max(1, self.total // 20) == 0:
            self._say(text)

    @staticmethod
    def _say(text: str) -> None:
        sys.stderr.write(f"\r\033[K{text}\n" if sys.stderr.isatty() else f"{text}\n")
        sys.stderr.flush()

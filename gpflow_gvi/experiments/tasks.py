"""One run of a sweep as a worker receives it, and what the worker returns."""

from __future__ import annotations

import functools
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .config import Experiment
from .results import Record, record_of

if TYPE_CHECKING:
    from .reuse import RunCache


class Task(NamedTuple):
    """One run, in plain values, so that a process can send it to another."""

    name: str
    """The name of its folder."""
    data: str
    """A name of its data set."""
    axes: dict[str, Any]
    """The names of the levels of the axes."""
    settings: dict[str, Any]
    """The experiment."""
    folder: str
    """Where the folders of the runs are."""
    data_dir: str | None
    pictures: bool


def execute(task: Task) -> Record:
    """Execute a run; return its record, with the traceback if it fails."""
    from .run import run

    try:
        folder = run(
            Experiment.model_validate(task.settings),
            task.folder,
            data_dir=None if task.data_dir is None else Path(task.data_dir),
            pictures=task.pictures,
            cache=_cache(),
        )
        return record_of(folder, task.data, task.axes)
    except Exception:  # whatever it is, it is recorded, and the other runs go on
        return failed(task, traceback.format_exc())


@functools.cache
def _cache() -> RunCache:
    """Return the graphs and the fitted regularisers that this process keeps between runs."""
    from .reuse import RunCache

    return RunCache()


def failed(task: Task, error: str) -> Record:
    """Return the record of a run that failed."""
    return {
        "name": task.name,
        "data": task.data,
        "axes": task.axes,
        "status": "failed",
        "error": error,
    }

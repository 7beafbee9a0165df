"""What a worker of a sweep is given, and what it keeps from one run to the next."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .config import Experiment
from .results import Record, record_of

if TYPE_CHECKING:
    from .reuse import Workshop


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


class Kept:
    """What a process keeps from one run to the next: a graph, and fitted regularisers."""

    def __init__(self) -> None:
        self._workshop: Workshop | None = None

    def record(self, task: Task) -> Record:
        """Do a task; return its record, with the traceback if it fails."""
        from .reuse import Workshop
        from .run import run

        if self._workshop is None:
            self._workshop = Workshop()
        try:
            folder = run(
                Experiment.model_validate(task.settings),
                task.folder,
                data_dir=None if task.data_dir is None else Path(task.data_dir),
                pictures=task.pictures,
                workshop=self._workshop,
            )
            return record_of(folder, task.data, task.axes)
        except Exception:  # whatever it is, it is recorded, and the other runs go on
            return failed(task, traceback.format_exc())


def failed(task: Task, error: str) -> Record:
    """Return the record of a run that failed."""
    return {
        "name": task.name,
        "data": task.data,
        "axes": task.axes,
        "status": "failed",
        "error": error,
    }

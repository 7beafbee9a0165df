"""One run of a sweep as a worker receives it, and what the worker returns."""

from __future__ import annotations

import errno
import functools
import os
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
    except Exception as error:  # whatever it is, it is recorded, and the other runs go on
        return failed(task, traceback.format_exc(), disk_full=_is_of_a_full_disk(error))


def _is_of_a_full_disk(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, is that the disk was full."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        if os.strerror(errno.ENOSPC) in str(error):  # of libraries with errors of their own
            return True
        error = error.__cause__ or error.__context__
    return False


@functools.cache
def _cache() -> RunCache:
    """Return the graphs and the fitted regularisers that this process keeps between runs."""
    from .reuse import RunCache

    return RunCache()


def failed(task: Task, error: str, *, disk_full: bool = False) -> Record:
    """Return the record of a run that failed.

    :param task: the run.
    :param error: what went wrong.
    :param disk_full: whether it was that the disk was full; the run is executed again then.
    """
    return {
        "name": task.name,
        "data": task.data,
        "axes": task.axes,
        "status": "failed",
        "error": error,
        **({"disk_full": True} if disk_full else {}),
    }

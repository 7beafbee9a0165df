"""Runs on disk: the folder of each, and the file of the results of a sweep.

A run works in `<name>.partial`. When all of it is there, `run.json` last, that is renamed to
`<name>`. A lock keeps two processes from the same run. `results.jsonl` has one line for each run,
written as runs finish:

    {"name": "curve3-...", "data": "curve3", "axes": {"covariance": "diagonal"}, "status": "done",
     "validation": {"nll": 0.73, ...}, "test": {...}, "seconds": 3.9}

A run that failed has "status": "failed" and an "error", its traceback, instead of metrics. If two
lines have the same name, the later one counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError
from typing_extensions import Required, TypedDict

from .._core import files
from .config import Experiment

if TYPE_CHECKING:
    from .sweep import PlannedRun

COMPLETE = "run.json"
"""What is written last."""


class FolderInUseError(RuntimeError):
    """Another process works on the same run."""


def name_of(experiment: Experiment) -> str:
    """Return a readable name for the settings, which other settings do not have."""
    kinds: tuple[str, ...] = (experiment.model.kind,)
    if experiment.model.kind == "gvi":
        kinds = (
            experiment.regulariser.kernel.kind,
            experiment.regulariser.mode,
            experiment.mean.kind,
            experiment.covariance.kind,
            experiment.divergence.kind,
        )
    return "-".join((experiment.data.label, *kinds, f"seed{experiment.seed}", digest(experiment)))


def digest(experiment: Experiment, *others: Any, of: set[str] | None = None) -> str:
    """Return a short text that other settings, data, or `others`, do not have; `of` are parts."""
    settings = json.dumps(experiment.model_dump(mode="json", include=of), sort_keys=True)
    text = f"{settings}{experiment.data.fingerprint}{others or ''}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


class RunFolder:
    """Where a run is, or will be."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.partial = self.path.with_name(f"{self.path.name}.partial")

    @property
    def is_complete(self) -> bool:
        """Whether the run is finished."""
        return (self.path / COMPLETE).is_file()

    def is_of(self, data: str) -> bool:
        """Whether the run is finished, and of data with this digest, if that is known.

        :raises ValueError: if it is finished, but of other data.
        """
        if not self.is_complete:
            return False
        known = json.loads((self.path / COMPLETE).read_text("utf-8")).get("data", data)
        if data not in ("", known):
            raise ValueError(
                f"{self.path} is a finished run of the same settings with other data: their file "
                "has changed, or is another one. Choose another --folder, or run it again by "
                "gpflow-gvi run --force."
            )
        return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, having cleared up what a process that was killed had left."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with held(self.path.with_name(f"{self.path.name}.lock")):
            if (self.partial / COMPLETE).is_file():
                self.publish()
            if self.path.exists() and not self.is_complete:
                raise FileExistsError(
                    f"{self.path} is no finished run: it has no {COMPLETE}. Delete or rename it."
                )
            yield

    def begin(self, *, anew: bool) -> Path:
        """Return the folder to work in, with what an unfinished run has left unless `anew`."""
        if anew:
            shutil.rmtree(self.partial, ignore_errors=True)
        self.partial.mkdir(exist_ok=True)
        return self.partial

    def publish(self) -> None:
        """Put the finished run in the place of an old one, from where it is complete."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.partial.rename(self.path)


def write_json(path: Path, value: Any) -> None:
    """Write a file of JSON, whole or not at all."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with files.new_file(path) as stream:
        stream.write(text.encode("utf-8"))


@contextlib.contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock, which the operating system releases if the process dies.

    :param path: the lock's file, which exists while the lock is held.
    :param wait: whether to wait for another process that holds it.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait else 0, poll_interval=0.1)
    except Timeout as error:
        raise FolderInUseError(
            f"{path} is held by another process, which works on the same. Wait for it, or choose "
            "another --folder."
        ) from error
    try:
        yield
    finally:
        # Still held: a process that has opened the file finds it deleted, and tries again.
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()
        lock.release()


Metrics = dict[str, float | None]


class Record(TypedDict, total=False):
    """The result of a run."""

    name: Required[str]
    data: str
    axes: dict[str, Any]
    status: Required[Literal["done", "failed"]]
    validation: Metrics | None
    test: Metrics | None
    seconds: float | None
    error: str


_RECORD = TypeAdapter(Record)


class Results:
    """The file of results, to read and to add to."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.jsonl"

    def read(self) -> tuple[dict[str, Record], list[str]]:
        """Return the records by the names of their runs, and the defects of other lines."""
        found: dict[str, Record] = {}
        wrong = []
        # Bytes: text may have other ends of lines within.
        lines = self.path.read_bytes().split(b"\n") if self.path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                record = _RECORD.validate_json(line)
                found[record["name"]] = record
            except ValidationError:
                if line.strip():
                    at = f"{self.path.name}:{number}"
                    wrong.append(f"{at} is no result of a run; it was skipped.")
        return found, wrong

    def add(self, *records: Record) -> None:
        """Write more lines, to the disk."""
        with self.path.open("ab+") as file:
            if size := file.seek(0, os.SEEK_END):
                file.seek(size - 1)
                if file.read(1) != b"\n":  # after a line that was torn
                    file.write(b"\n")
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def done(folder: Path, data: str, axes: Mapping[str, Any]) -> Record:
    """Return the record of a finished run."""
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    seconds = json.loads((folder / COMPLETE).read_text("utf-8"))["seconds"]
    total = round(sum(seconds.values()), 3)
    record = {"name": folder.name, "data": data, "axes": dict(axes), "status": "done"}
    return _RECORD.validate_python(record | metrics | {"seconds": total})


def failed(run: PlannedRun, error: str) -> Record:
    """Return the record of a run that failed."""
    return Record(name=run.name, data=run.data, axes=run.axes, status="failed", error=error)

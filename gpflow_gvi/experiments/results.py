"""The results of a sweep: `results.jsonl`, one line for each run, written as runs finish.

    {"name": "curve3-...", "data": "curve3", "axes": {"covariance": "diagonal"}, "status": "done",
     "validation": {"nll": 0.73, ...}, "test": {...}, "seconds": 3.9}

A run that failed has "status": "failed" and an "error", its traceback, instead of metrics. If two
lines have the same name, the later one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError
from typing_extensions import Required, TypedDict

from .run_folder import COMPLETE

if TYPE_CHECKING:
    from .sweep import PlannedRun

NAME = "results.jsonl"

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
        self.path = folder / NAME

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

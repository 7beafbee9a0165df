"""The runs that a report is of: the results of a sweep, or folders that `run` has left."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..results import MALFORMED, SWEEP_NAME, Record, Results, done
from ..run_folder import COMPLETE

NONE = "—"
"""The level of an axis that a run does not have."""


class Runs(NamedTuple):
    """Runs, and what there is to say of where they were read."""

    table: pd.DataFrame
    """A row for each run: `name`, `data`, `status`, `axes.*`, `validation.*`, `test.*`, `seconds`,
    and the `error` of a run that failed; metrics are NaN where they were not finite."""
    levels: pd.DataFrame
    """A row for each run: its level of each axis, as it is shown."""
    notes: list[str]
    """What was skipped."""
    newest: datetime
    name: str
    """The name of the sweep, or of the folder."""


def read_runs(folder: Path) -> Runs:
    """Return the runs of a folder; what cannot be read is named in the notes, and skipped.

    :param folder: that of a sweep, with its results, or one with folders of runs.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; give that of a sweep, or of runs.")
    results = Results(folder)
    if results.path.is_file():
        records, notes = results.read()
        newest = _time(results.path)
    else:
        records, notes, newest = _of_folders(folder)
    rows, levels = [], []
    for record in records.values():
        try:
            row, axes = _row(record), record.get("axes") or {}
            shown = {plain(name): plain(text(level)) for name, level in axes.items()}
        except MALFORMED:
            name = plain(record["name"])
            notes.append(f"{name} has a record without valid values; it was skipped.")
        else:
            rows.append(row)
            levels.append(shown)
    if not rows:
        raise ValueError(
            f"{folder} holds neither a {results.path.name} with runs nor folders of finished runs. "
            f"Give the --folder of a sweep or of runs.{''.join(f' {note}' for note in notes[:5])}"
        )
    table = pd.DataFrame(rows, dtype=object)  # levels of one axis may be numbers and texts
    parts = ("name", "data", "status", "axes", "validation", "test", "seconds", "error")
    columns = sorted(table, key=lambda column: parts.index(column.partition(".")[0]))
    return Runs(table[columns], pd.DataFrame(levels).fillna(NONE), notes, newest, _name(folder))


def plain(value: Any) -> str:
    """Return text that can be written: text from JSON may have halves of characters."""
    return str(value).encode("utf-8", errors="replace").decode()


def text(value: Any) -> str:
    """Return a level as it is shown."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _row(record: Record) -> dict[str, Any]:
    """Return the row of a record, with the columns of each part of it in their order."""
    failed = record["status"] == "failed"
    row = {
        "name": plain(record["name"]),
        "data": plain(record["data"]),
        "status": record["status"],
        "seconds": _number(record.get("seconds")),
        "error": plain(record.get("error") or "It left no traceback.") if failed else None,
    }
    for name, level in (record.get("axes") or {}).items():
        is_plain = isinstance(level, int | float | None)
        row[f"axes.{plain(name)}"] = level if is_plain else plain(text(level))
    for part in ("validation", "test"):
        for name, value in (record.get(part) or {}).items():
            row[f"{part}.{plain(name)}"] = _number(value)
    return row


def _number(value: Any) -> float:
    is_finite = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_finite else math.nan


def _name(folder: Path) -> str:
    try:
        return plain(json.loads((folder / SWEEP_NAME).read_text("utf-8"))["name"])
    except MALFORMED:
        return plain(folder.resolve().name)


def _of_folders(folder: Path) -> tuple[dict[str, Record], list[str], datetime]:
    """Return records whose axes are the settings that differ, notes, and the newest run's time."""
    from ..config import read

    records, notes, times = {}, [], []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if path.suffix in (".partial", ".replaced"):
            notes.append(f"{path.name} is not finished; it was skipped.")
            continue
        try:
            experiment = read(path / "config.yaml")
            settings = dict(_flat(experiment.model_dump(mode="json")))
            record = done(path, experiment.data.label, settings)
            _row(record)
        except MALFORMED as error:
            notes.append(f"{path.name} cannot be read as a finished run ({error}); it was skipped.")
        else:
            records[record["name"]] = record
            times.append(_time(path / COMPLETE))
    differ = _differing([record["axes"] for record in records.values()])
    for record in records.values():
        record["axes"] = {key: level for key, level in record["axes"].items() if key in differ}
    return records, notes, max(times, default=_time(folder))


def _differing(settings: Iterable[dict[str, Any]]) -> set[str]:
    """Return the keys in which settings differ, without those that other kinds of parts lack."""
    table = pd.DataFrame([{key: text(level) for key, level in each.items()} for each in settings])
    differ = {key for key in table if table[key].nunique() > 1}
    for key in table:
        names = key.split(".")
        kinds = {".".join((*names[:depth], "kind")) for depth in range(1, len(names))}
        if not kinds & differ and table[key].isna().any():
            differ.add(key)
    return differ


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return the leaves of a configuration, by their dotted paths."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _time(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)

"""The runs that a report is of: the results of a sweep, or folders that `run` has left."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from .results import MALFORMED, SWEEP_NAME, Record, Results, done
from .run_folder import COMPLETE


class Run(NamedTuple):
    """One run."""

    name: str
    data: str
    axes: dict[str, Any]
    """Its level of each axis."""
    validation: dict[str, float]
    test: dict[str, float]
    """Metrics; NaN where they were not finite."""
    seconds: float
    error: str | None
    """The traceback of a run that failed."""


class Collected(NamedTuple):
    """Runs, and what there is to say of where they were read."""

    runs: list[Run]
    notes: list[str]
    """What was skipped."""
    newest: datetime
    name: str
    """The name of the sweep, or of the folder."""


def read_runs(folder: Path) -> Collected:
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
    runs = []
    for record in records.values():
        try:
            runs.append(_run(record))
        except MALFORMED:
            notes.append(
                f"{_plain(record['name'])} has a record without valid values; it was skipped."
            )
    if not runs:
        raise ValueError(
            f"{folder} holds neither a {results.path.name} with runs nor folders of finished runs. "
            f"Give the --folder of a sweep or of runs.{''.join(f' {note}' for note in notes[:5])}"
        )
    return Collected(runs, notes, newest, _name(folder))


def _name(folder: Path) -> str:
    try:
        return _plain(json.loads((folder / SWEEP_NAME).read_text("utf-8"))["name"])
    except MALFORMED:
        return _plain(folder.resolve().name)


def text(value: Any) -> str:
    """Return a level as it is shown."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _of_folders(folder: Path) -> tuple[dict[str, Record], list[str], datetime]:
    """Return records whose axes are the settings that differ, notes, and the newest run's time."""
    from .config import read

    records, notes, times = [], [], []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if path.suffix in (".partial", ".replaced"):
            notes.append(f"{path.name} is not finished; it was skipped.")
            continue
        try:
            experiment = read(path / "config.yaml")
            axes = dict(_flat(experiment.model_dump(mode="json")))
            record = done(path, experiment.data.label, axes)
            _run(record)
        except MALFORMED as error:
            notes.append(f"{path.name} cannot be read as a finished run ({error}); it was skipped.")
        else:
            records.append(record)
            times.append(_time(path / COMPLETE))
    differ = _differing([record["axes"] for record in records])
    for record in records:
        record["axes"] = {key: level for key, level in record["axes"].items() if key in differ}
    newest = max(times, default=_time(folder))
    return {record["name"]: record for record in records}, notes, newest


def _differing(settings: list[dict[str, Any]]) -> set[str]:
    """Return the keys in which settings differ, without those that other kinds of parts lack."""
    keys = dict.fromkeys(key for each in settings for key in each)
    differ = {key for key in keys if len({text(each[key]) for each in settings if key in each}) > 1}
    for key in keys:
        names = key.split(".")
        kinds = {".".join((*names[:depth], "kind")) for depth in range(1, len(names))}
        if not kinds & differ and not all(key in each for each in settings):
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


def _run(record: Any) -> Run:
    return Run(
        name=_plain(record["name"]),
        data=_plain(record["data"]),
        axes={_plain(name): _level(level) for name, level in (record.get("axes") or {}).items()},
        validation=_metrics(record.get("validation")),
        test=_metrics(record.get("test")),
        seconds=_number(record.get("seconds")),
        error=None
        if record["status"] == "done"
        else _plain(record.get("error") or "It left no traceback."),
    )


def _plain(value: Any) -> str:
    """Return text that can be written: of JSON it may have halves of characters."""
    return str(value).encode("utf-8", errors="replace").decode()


def _level(value: Any) -> Any:
    return value if isinstance(value, int | float | None) else _plain(text(value))


def _metrics(values: Any) -> dict[str, float]:
    return {_plain(name): _number(value) for name, value in (values or {}).items()}


def _number(value: Any) -> float:
    is_finite = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_finite else math.nan


def _time(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)

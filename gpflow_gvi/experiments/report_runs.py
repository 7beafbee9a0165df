"""The runs that a report is of: the results of a sweep, or folders that `run` has left."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from .results import NAME as RESULTS

_MALFORMED = (
    AttributeError,
    KeyError,
    OSError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What it may raise to read what is torn, or something else than it should be."""


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


def read_runs(folder: Path) -> Collected:
    """Return the runs of a folder; what cannot be read is named in the notes, and skipped.

    :param folder: that of a sweep, with its results, or one with folders of runs.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; give that of a sweep, or of runs.")
    results = folder / RESULTS
    found = _of_sweep(results) if results.is_file() else _of_folders(folder)
    if not found.runs:
        raise ValueError(
            f"{folder} holds neither a {RESULTS} with runs nor folders of finished runs. Give the "
            f"--folder of a sweep or of runs.{''.join(f' {note}' for note in found.notes[:5])}"
        )
    return found


def text(value: Any) -> str:
    """Return a level as it is shown."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _of_sweep(path: Path) -> Collected:
    runs, notes = {}, []
    with path.open("rb") as file:  # bytes: text may have other ends of lines within
        for number, line in enumerate(file, 1):
            try:
                run = _run(json.loads(line))
            except _MALFORMED:
                if line.strip():
                    notes.append(f"{path.name}:{number} is no result of a run; it was skipped.")
            else:
                runs[run.name] = run
    return Collected(list(runs.values()), notes, _time(path))


def _of_folders(folder: Path) -> Collected:
    from .config import read

    records, notes, times = [], [], []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if path.suffix in (".partial", ".replaced"):
            notes.append(f"{path.name} is not finished; it was skipped.")
            continue
        try:
            experiment = read(path / "config.yaml")
            metrics, facts = (
                json.loads((path / name).read_text("utf-8"))
                for name in ("metrics.json", "run.json")
            )
            record = {
                "name": path.name,
                "data": experiment.data.label,
                "axes": dict(_flat(experiment.model_dump(mode="json"))),
                "status": "done",
                "seconds": sum(facts["seconds"].values()),
                **{part: metrics.get(part) for part in ("validation", "test")},
            }
            _run(record)
        except _MALFORMED as error:
            notes.append(f"{path.name} cannot be read as a finished run ({error}); it was skipped.")
        else:
            records.append(record)
            times.append(_time(path / "run.json"))
    paths = dict.fromkeys(key for record in records for key in record["axes"])
    differ = {
        key for key in paths if len({text(record["axes"].get(key, "—")) for record in records}) > 1
    }
    for record in records:
        record["axes"] = {key: level for key, level in record["axes"].items() if key in differ}
    return Collected([_run(record) for record in records], notes, max(times, default=_time(folder)))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return the leaves of a configuration, by their dotted paths."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _run(record: Any) -> Run:
    done = record["status"] == "done"
    if not done and record["status"] != "failed":
        raise ValueError(f"status is {record['status']!r}; it must be done or failed")
    return Run(
        name=_plain(record["name"]),
        data=_plain(record["data"]),
        axes={_plain(name): _level(level) for name, level in (record.get("axes") or {}).items()},
        validation=_metrics(record.get("validation")),
        test=_metrics(record.get("test")),
        seconds=_number(record.get("seconds")),
        error=None if done else _plain(record.get("error") or "It left no traceback."),
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

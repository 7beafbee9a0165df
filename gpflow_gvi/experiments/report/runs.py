"""The runs that a report is of: the results of a sweep, or folders that `run` has left."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..run_folder import COMPLETE, Record, Results, done

NONE = "—"
"""The level of an axis that a run does not have."""

PARTS = ("name", "data", "status", "axes", "validation", "test", "seconds", "error")


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
    """The name of the folder."""


def read_runs(folder: Path) -> Runs:
    """Return the runs of a folder; what cannot be read is named in the notes, and skipped."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; give that of a sweep, or of runs.")
    results = Results(folder)
    if results.path.is_file():
        by_name, notes = results.read()
        records, newest = list(by_name.values()), _time(results.path)
    else:
        records, notes, newest = _of_folders(folder)
    if not records:
        raise ValueError(
            f"{folder} holds neither a {results.path.name} with runs nor folders of finished runs. "
            f"Give the --folder of a sweep or of runs.{''.join(f' {note}' for note in notes[:5])}"
        )
    levels = [{name: text(v) for name, v in of.get("axes", {}).items()} for of in records]
    table = _table([{**record, "axes": of} for record, of in zip(records, levels, strict=True)])
    return Runs(table, pd.DataFrame(levels).fillna(NONE), notes, newest, folder.resolve().name)


def text(value: Any) -> str:
    """Return a level as it is shown."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _table(records: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.json_normalize([{**dict.fromkeys(PARTS), **record} for record in records])
    of_parts = ("axes", "validation", "test")  # what is left of those that a run does not have
    table = table.drop(columns=[part for part in of_parts if part in table])
    for name in table:
        if name == "seconds" or name.startswith(("validation.", "test.")):
            numbers = pd.to_numeric(table[name], errors="coerce")
            table[name] = numbers.replace([np.inf, -np.inf], np.nan)
    is_failed = table["status"] == "failed"
    table.loc[is_failed, "error"] = table["error"][is_failed].fillna("It left no traceback.")
    return table[sorted(table, key=lambda column: PARTS.index(column.partition(".")[0]))]


def _of_folders(folder: Path) -> tuple[list[Record], list[str], datetime]:
    """Return records whose axes are the settings that differ, notes, and the newest run's time."""
    from ..config import read

    records, settings, notes, times = [], [], [], []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if path.suffix == ".partial":
            notes.append(f"{path.name} is not finished; it was skipped.")
            continue
        try:
            experiment = read(path / "config.yaml")
            records.append(done(path, experiment.data.label, {}))
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            notes.append(f"{path.name} cannot be read as a finished run ({error}); it was skipped.")
        else:
            [leaves] = pd.json_normalize(experiment.settings()).astype(object).iloc
            settings.append({key: text(of) for key, of in leaves.items()})
            times.append(_time(path / COMPLETE))
    differ = _differing(pd.DataFrame(settings))
    for record, of in zip(records, settings, strict=True):
        record["axes"] = {key: of[key] for key in differ if key in of}
    return records, notes, max(times, default=_time(folder))


def _differing(settings: pd.DataFrame) -> list[str]:
    """Return the keys in which settings differ, without those that other kinds of parts lack.

    Parts that are missing as a whole are no difference: the model, or `train_q`, says so already.
    """
    differ = [key for key in settings if settings[key].nunique() > 1]
    parts = tuple(key.removesuffix("kind") for key in differ if key.endswith(".kind"))
    is_given = settings.notna()
    has_part = is_given.T.groupby(lambda key: key.partition(".")[0]).transform("any").T
    is_lacking = (has_part & ~is_given).any()
    return differ + [
        key
        for key in settings
        if key not in differ and is_lacking[key] and not key.startswith(parts)
    ]


def _time(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)

"""The report of many runs: a page in one file of HTML that needs no server, and a table.

The template escapes whatever comes from the runs, or writes it as JSON into an element that is no
program; the policy in the head of the page allows no other program than its own.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from ... import __version__
from ..._core import files
from .ranking import Ranking, effects, rank, shown
from .runs import NONE, Runs, read_runs

logger = logging.getLogger("gpflow_gvi")

LIMITS = {"rows": 50, "methods": 12, "failures": 50}
"""The maximal numbers of rows that are there without JavaScript, of settings that are compared in
columns, and of tracebacks."""


def report(
    folder: str | Path,
    *,
    output: str | Path | None = None,
    score: str = "nll",
    over: Iterable[str] | None = None,
) -> Path:
    """Write the report of a folder's runs, and return the path of its page.

    Beside the page goes `results.csv`, a row for each run. The folders of the runs are only read.

    :param folder: that of a sweep, or one with folders of runs.
    :param output: the page; by default `report.html` in the folder.
    :param score: the metric that ranks, on the rows for validation.
    :param over: the axes whose levels are repetitions of the same setting; by default
        `split.index`, `seed` and `data.seed`.
    """
    folder = Path(folder)
    runs = read_runs(folder)
    for note in runs.notes:
        logger.warning("%s", note)
    ranking = rank(runs, score=score, over=over)
    page = folder / "report.html" if output is None else Path(output)
    page.parent.mkdir(parents=True, exist_ok=True)
    html = _render(runs, ranking, folder)
    table = runs.table.to_csv(index=False, lineterminator="\r\n")
    for path, content in ((page.with_name("results.csv"), table), (page, html)):
        with files.new_file(path) as stream:
            stream.write(content.encode("utf-8", errors="replace"))
    return page


def _render(runs: Runs, ranking: Ranking, folder: Path) -> str:
    template = resources.files(__package__).joinpath("page.html").read_text("utf-8")
    script = resources.files(__package__).joinpath("page.js").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    settings = _settings(ranking)
    return environment.from_string(template).render(
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=runs.name,
        ranking=ranking,
        summary=_summary(runs, ranking),
        notes=runs.notes,
        best=[
            {**of, "picture": _picture(folder, of["first"])} for of in settings if of["rank"] == 1
        ],
        methods=_methods(ranking, settings),
        settings=settings,
        table=_table(ranking, settings),
        effects=effects(ranking),
        shown=shown,
        failures=_failures(runs.table),
        limits=LIMITS,
        absent=NONE,
        zip=zip,
    )


def _picture(folder: Path, name: str) -> str:
    """Return the prediction of a run as base64, or nothing if it was not drawn."""
    path = folder / name / "prediction.png"
    is_inside = Path(name).name == name and name != ".."  # a name from a file may lead elsewhere
    return base64.b64encode(path.read_bytes()).decode() if is_inside and path.is_file() else ""


def _settings(ranking: Ranking) -> list[dict[str, Any]]:
    """Return the rank, levels and means of each setting, as they are shown."""
    found = ranking.places.to_dict("records")
    levels, means = ranking.settings.to_numpy(), ranking.texts.to_numpy().tolist()
    for setting, (data, *of), texts in zip(found, levels, means, strict=True):
        failed = f", {setting['failed']} failed" if setting["failed"] else ""
        text = f"{setting['runs']}{failed}"
        setting |= {"data": data, "levels": of, "means": texts, "runs_text": text}
    return found


def _summary(runs: Runs, ranking: Ranking) -> dict[str, str]:
    failed = (runs.table["status"] == "failed").sum()
    settings = len(ranking.settings[ranking.axes].drop_duplicates()) if ranking.axes else 1
    return {
        "runs": f"{len(runs.table) - failed:,} done, {failed:,} failed",
        "time of the runs": f"{runs.table['seconds'].sum() / 3600.0:.2f} h",
        "settings": f"{settings:,}",
        "data sets": ", ".join(ranking.levels["data"]),
        **{f"axis {axis}": ", ".join(ranking.levels[axis]) for axis in ranking.axes},
        "repetitions over": ", ".join(ranking.repeated) or "none",
        **{f"{axis} (in all runs)": level for axis, level in ranking.constant.items()},
        "newest run": f"{runs.newest:%Y-%m-%d %H:%M} UTC",
        "made by": f"gpflow_gvi {__version__}",
    }


def _methods(ranking: Ranking, settings: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return data sets × settings, where these are few."""
    names = sorted({tuple(of["levels"]) for of in settings})
    if not 2 <= len(names) <= LIMITS["methods"]:
        return None
    found = {(of["data"], *of["levels"]): of for of in settings}
    data_sets = ranking.levels["data"]
    return {
        "names": [", ".join(levels) for levels in names],
        "rows": {data: [found.get((data, *levels)) for levels in names] for data in data_sets},
    }


def _failures(table: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the tracebacks, each with the runs that ended in it: the most frequent first."""
    failed = table[table["status"] == "failed"]
    errors = failed["error"].astype(str).str.strip().replace("", NONE)
    groups = failed["name"].groupby(errors, sort=False).agg(list)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _table(ranking: Ranking, settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the table of settings for the program of the page, which shows and sorts it.

    A row has: rank, means, their texts, number of runs, text of that, and numbers of levels.
    """
    names = list(ranking.settings)
    levels = [ranking.levels[name] for name in names]
    numbers = [
        pd.Categorical(ranking.settings[name], of).codes.tolist()
        for name, of in zip(names, levels, strict=True)
    ]
    finite = ranking.means.astype(object).where(np.isfinite(ranking.means), None)
    rows = [
        [of["rank"] or None, means, of["means"], of["runs"], of["runs_text"], *at]
        for of, means, *at in zip(settings, finite.to_numpy().tolist(), *numbers, strict=True)
    ]
    head = ["rank", *names, *ranking.means, "runs"]
    return {"names": names, "head": head, "levels": levels, "rows": rows}

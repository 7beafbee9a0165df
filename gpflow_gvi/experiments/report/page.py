"""The page of a report: one file of HTML that needs no server and no network.

The template escapes whatever comes from the runs, or writes it as JSON into an element that is no
program; the policy in the head of the page allows no other program than its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from ... import __version__
from .ranking import Ranking, effects, shown
from .runs import NONE, Runs

LIMITS = {"rows": 50, "methods": 12, "failures": 50}
"""The maximal numbers of rows that are there without JavaScript, of settings that are compared in
columns, and of tracebacks."""


def render(runs: Runs, ranking: Ranking, figures: Mapping[str, bytes]) -> str:
    """Return the page, with PNG pictures of the best settings, by data set."""
    files = resources.files(__package__)
    script = files.joinpath("page.js").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    settings = _settings(ranking)
    return environment.from_string(files.joinpath("page.html").read_text("utf-8")).render(
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=runs.name,
        ranking=ranking,
        summary=_summary(runs, ranking),
        notes=runs.notes,
        best=[
            {**of, "picture": base64.b64encode(figures.get(of["data"], b"")).decode()}
            for of in settings
            if of["rank"] == 1
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


def _settings(ranking: Ranking) -> list[dict[str, Any]]:
    """Return the rank, levels and means of each setting, as they are shown."""
    found = []
    levels, means = ranking.settings.to_numpy(), ranking.texts.to_numpy()
    for place, (data, *of), texts in zip(
        ranking.places.to_dict("records"), levels, means.tolist(), strict=True
    ):
        failed = f", {place['failed']} failed" if place["failed"] else ""
        runs = f"{place['runs']}{failed}"
        found.append({**place, "data": data, "levels": of, "means": texts, "runs_text": runs})
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

"""The page of a report: one file of HTML that needs no server and no network.

The template escapes whatever comes from the runs, or writes it as JSON into an element that is no
program; the policy in the head of the page allows no other program than its own.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from ... import __version__
from .ranking import Ranking, effects, shown
from .runs import NONE, Runs

STATIC = 50
"""Rows of the table that are there without JavaScript."""

MAX_METHODS = 12
"""The maximal number of settings that are compared as methods, each in a column."""

MAX_LEVELS = 40
"""No effects are shown for axes with more levels, such as those that are drawn at random."""

MAX_FAILURES = 50
"""The maximal number of different tracebacks that are shown."""

MAX_POINTS = 200
"""The maximal number of points of a training curve."""


def render(
    runs: Runs,
    ranking: Ranking,
    figures: Mapping[str, bytes],
    histories: Mapping[str, pd.DataFrame],
) -> str:
    """Return the page, with PNG pictures and trainings of the best settings, by data set."""
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
            {
                **of,
                "picture": base64.b64encode(figures.get(of["data"], b"")).decode(),
                "curves": _curves(histories[of["data"]]) if of["data"] in histories else [],
            }
            for of in settings
            if of["rank"] == 1
        ],
        methods=_methods(ranking, settings),
        settings=settings,
        table=_table(ranking, settings),
        effects={axis: _effects(found) for axis, found in effects(ranking).items()},
        failures=_failures(runs.table),
        limits={"rows": STATIC, "levels": MAX_LEVELS, "failures": MAX_FAILURES},
        absent=NONE,
        zip=zip,
    )


def _settings(ranking: Ranking) -> list[dict[str, Any]]:
    """Return the rank, levels and means of each setting, as they are shown."""
    rows = zip(
        ranking.places.to_dict("records"),
        ranking.settings.itertuples(index=False, name=None),
        ranking.texts.to_numpy().tolist(),
        strict=True,
    )
    return [
        {
            **place,
            "data": data,
            "levels": levels,
            "means": means,
            "runs_text": f"{place['runs']}"
            + (f", {place['failed']} failed" if place["failed"] else ""),
        }
        for place, (data, *levels), means in rows
    ]


def _summary(runs: Runs, ranking: Ranking) -> dict[str, str]:
    failed = (runs.table["status"] == "failed").sum()
    settings = len(ranking.settings[ranking.axes].drop_duplicates()) if ranking.axes else 1
    return {
        "runs": f"{len(runs.table) - failed:,} done, {failed:,} failed",
        "time of the runs": f"{runs.table['seconds'].sum() / 3600.0:.2f} h",
        "settings": f"{settings:,}",
        "data sets": ", ".join(ranking.levels["data"]),
        **{f"axis {axis}": _listed(ranking.levels[axis]) for axis in ranking.axes},
        "repetitions over": ", ".join(ranking.repeated) or "none",
        **{f"{axis} (in all runs)": level for axis, level in ranking.constant.items()},
        "newest run": f"{runs.newest:%Y-%m-%d %H:%M} UTC",
        "made by": f"gpflow_gvi {__version__}",
    }


def _listed(levels: Sequence[str]) -> str:
    return ", ".join(levels) if len(levels) <= MAX_LEVELS else f"{len(levels):,} levels"


def _curves(history: pd.DataFrame) -> list[dict[str, str]]:
    """Return the points of a curve, 160 × 48, and its two ends for each column of a training."""
    found = []
    for name, column in history.items():
        values = column[np.isfinite(column)]
        values = values.iloc[:: max(1, math.ceil(len(values) / MAX_POINTS))]
        if len(values) < 2:
            continue
        x, y = values.index.to_numpy(float), values.to_numpy()
        x = 160.0 * (x - x[0]) / (x[-1] - x[0])
        y = 46.0 - 44.0 * (y - y.min()) / (np.ptp(y) or 1.0)
        found.append(
            {
                "name": str(name),
                "points": " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)),
                "ends": f"{values.iloc[0]:.4g} → {values.iloc[-1]:.4g}",
            }
        )
    return found


def _methods(ranking: Ranking, settings: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return data sets × settings, where these are few."""
    names = sorted({tuple(of["levels"]) for of in settings})
    if not 2 <= len(names) <= MAX_METHODS:
        return None
    found = {(of["data"], *of["levels"]): of for of in settings}
    data_sets = ranking.levels["data"]
    return {
        "names": [", ".join(levels) for levels in names],
        "rows": {data: [found.get((data, *levels)) for levels in names] for data in data_sets},
    }


def _effects(found: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the effects of levels, each with the positions of its plot, 200 wide."""
    error = found["error"].fillna(0.0)
    places = pd.DataFrame(
        {"left": found["mean"] - error, "mean": found["mean"], "right": found["mean"] + error}
    ).assign(zero=0.0)
    ends = places.to_numpy()[np.isfinite(places.to_numpy())]
    low, width = ends.min(), np.ptp(ends)
    if 0.0 < width < math.inf:
        plots = (5.0 + 190.0 * (places - low) / width).round(1).to_dict("records")
    else:
        plots = [{}] * len(found)
    return [
        {
            "level": level,
            "shift": shown(row["mean"], row["error"]),
            "plot": plot if row["n"] else {},
            **row,
        }
        for level, row, plot in zip(found.index, found.to_dict("records"), plots, strict=True)
    ]


def _failures(table: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the tracebacks, each with the runs that ended in it: the most frequent first."""
    failed = table[table["status"] == "failed"]
    errors = failed["error"].str.strip().replace("", NONE)
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

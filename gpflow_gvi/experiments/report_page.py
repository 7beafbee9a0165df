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

from .. import __version__
from .ranking import NONE, Effect, Mean, Ranking, Setting, effects
from .report_runs import Collected, Run

STATIC = 50
"""Rows of the table that are there without JavaScript."""

MAX_METHODS = 12
"""The maximal number of settings that are compared as methods, each in a column."""

MAX_LEVELS = 40
"""Of axes with more levels, as those that are drawn at random, no effects are shown."""

MAX_FAILURES = 50
"""The maximal number of different tracebacks that are shown."""

MAX_POINTS = 200
"""The maximal number of points of a training curve."""


def render(
    collected: Collected,
    ranking: Ranking,
    figures: Mapping[str, bytes],
    histories: Mapping[str, pd.DataFrame],
) -> str:
    """Return the page.

    :param collected: the runs.
    :param ranking: their settings.
    :param figures: PNG pictures of the best settings, by data set.
    :param histories: the trainings of the runs in these pictures, by data set.
    """
    files = resources.files(__package__)
    script = files.joinpath("report.js").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    names = ["rank", "data", *ranking.axes, *ranking.measures, "runs"]
    return environment.from_string(files.joinpath("report.html").read_text("utf-8")).render(
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=collected.name,
        ranking=ranking,
        summary=_summary(collected, ranking),
        notes=collected.notes,
        best={
            data: {
                "setting": setting,
                "picture": base64.b64encode(figures[data]).decode() if data in figures else None,
                "curves": _curves(histories[data]) if data in histories else [],
            }
            for data, setting in ranking.best.items()
        },
        methods=_methods(ranking),
        head=names,
        table=_rows(ranking, names),
        effects={axis: _effects(found) for axis, found in effects(ranking).items()},
        failures=_failures(collected.runs),
        limits={"rows": STATIC, "levels": MAX_LEVELS, "failures": MAX_FAILURES},
        absent=NONE,
        runs_of=_runs,
        zip=zip,
    )


def _summary(collected: Collected, ranking: Ranking) -> dict[str, str]:
    failed = sum(run.error is not None for run in collected.runs)
    hours = sum(run.seconds for run in collected.runs if math.isfinite(run.seconds)) / 3600.0
    return {
        "runs": f"{len(collected.runs) - failed:,} done, {failed:,} failed",
        "time of the runs": f"{hours:.2f} h",
        "settings": f"{len({setting.levels for setting in ranking.settings}):,}",
        "data sets": ", ".join(ranking.levels["data"]),
        **{f"axis {axis}": _listed(ranking.levels[axis]) for axis in ranking.axes},
        "repetitions over": ", ".join(ranking.repeated) or "nothing",
        **{f"{axis} (in all runs)": level for axis, level in ranking.constant.items()},
        "newest run": f"{collected.newest:%Y-%m-%d %H:%M} UTC",
        "made by": f"gpflow_gvi {__version__}",
    }


def _listed(levels: Sequence[str]) -> str:
    return ", ".join(levels) if len(levels) <= MAX_LEVELS else f"{len(levels):,} levels"


def _curves(history: pd.DataFrame) -> list[dict[str, str]]:
    """Return of each column of a training the points of a curve, 160 × 48, and its two ends."""
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


def _methods(ranking: Ranking) -> dict[str, Any] | None:
    """Return data sets × settings, where these are few."""
    settings = sorted({setting.levels for setting in ranking.settings})
    if not 2 <= len(settings) <= MAX_METHODS:
        return None
    found = {(setting.data, setting.levels): setting for setting in ranking.settings}
    return {
        "names": [", ".join(levels) for levels in settings],
        "rows": {
            data: [found.get((data, levels)) for levels in settings]
            for data in ranking.levels["data"]
        },
    }


def _effects(found: Sequence[Effect]) -> list[tuple[Effect, dict[str, float] | None]]:
    """Return effects, each with the positions of its plot, 200 wide."""
    ends = [end for effect in found for end in _ends(effect.shift) if math.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])

    def plot(shift: Mean) -> dict[str, float] | None:
        if not shift.n or not 0.0 < high - low < math.inf:
            return None
        left, right = _ends(shift)
        places = {"left": left, "right": right, "mean": shift.mean, "zero": 0.0}
        return {name: 5.0 + 190.0 * (x - low) / (high - low) for name, x in places.items()}

    return [(effect, plot(effect.shift)) for effect in found]


def _ends(shift: Mean) -> tuple[float, float]:
    error = 0.0 if math.isnan(shift.error) else shift.error
    return shift.mean - error, shift.mean + error


def _failures(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Return the tracebacks, each with the runs that ended in it: the most frequent first."""
    groups: dict[str, list[str]] = {}
    for run in runs:
        if run.error is not None:
            groups.setdefault(run.error.strip() or NONE, []).append(run.name)
    return sorted(groups.items(), key=lambda item: -len(item[1]))


def _rows(ranking: Ranking, head: Sequence[str]) -> dict[str, Any]:
    """Return the table of settings for the program of the page, which shows and sorts it.

    Of each row: rank, means, their texts, number of runs, text of that, and numbers of levels.
    """
    names = ["data", *ranking.axes]
    index = [{level: n for n, level in enumerate(ranking.levels[name])} for name in names]
    rows = [
        [
            at.rank,
            [mean.mean if math.isfinite(mean.mean) else None for mean in at.measures],
            [str(mean) for mean in at.measures],
            len(at.runs),
            _runs(at),
            *(of[level] for of, level in zip(index, (at.data, *at.levels), strict=True)),
        ]
        for at in ranking.settings
    ]
    levels = [ranking.levels[name] for name in names]
    return {"names": names, "head": list(head), "levels": levels, "rows": rows}


def _runs(setting: Setting) -> str:
    return f"{len(setting.runs)}" + (f", {setting.failed} failed" if setting.failed else "")

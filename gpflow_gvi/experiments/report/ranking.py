"""Settings and their repetitions: means, ranks by validation, and the effect of each axis."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from .runs import NONE, Runs

REPETITIONS = ("split.index", "seed", "data.seed")
"""Axes whose levels are repetitions of the same setting."""

ORIENTATION = {
    **dict.fromkeys(("nll", "rmse", "mae", "crps", "width", "calibration_error"), "lower"),
    **dict.fromkeys(("brier", "ece", "conformal_width", "conformal_size"), "lower"),
    "accuracy": "higher",
}
"""Which values of a score are better, as `gpflow_gvi.metrics` has it, but without TensorFlow."""

SHOWN = ("rmse", "coverage", "accuracy")
"""Test metrics that are shown beside the score, where runs have them."""


class Ranking(NamedTuple):
    """All settings, by rank: each table has a row for each of them."""

    score: str
    orientation: str
    levels: dict[str, list[str]]
    """The levels of "data" and of each axis, in order."""
    repeated: list[str]
    constant: dict[str, str]
    settings: pd.DataFrame
    """The data set, and the level of each axis."""
    places: pd.DataFrame
    """The `rank` on its data set by validation, 0 without a score; the name of the `first` of its
    runs; the numbers of `runs` that are done and of those that `failed`."""
    means: pd.DataFrame
    """The means of the validation score, the test score, and what else is measured."""
    errors: pd.DataFrame
    """Their standard errors, s/√n; NaN for n = 1."""
    missing: pd.DataFrame
    """The numbers of runs without a finite value."""

    @property
    def axes(self) -> list[str]:
        """The axes of which settings have different levels."""
        return list(self.settings)[1:]

    @property
    def texts(self) -> pd.DataFrame:
        """The means as they are shown."""
        parts = (self.means, self.errors, self.missing)
        return pd.DataFrame({c: list(map(shown, *(part[c] for part in parts))) for c in self.means})


def shown(mean: float, error: float, missing: float = 0) -> str:
    """Return a mean as it is shown: with its error, to the digits that this leaves."""
    if math.isnan(mean):
        return NONE
    text = f"{mean:.4g}"
    if not math.isnan(error):
        digits = 1 - math.floor(math.log10(error)) if 1e-5 < error < 1e5 else None
        form = ".2g" if digits is None else f".{max(0, digits)}f"
        text = f"{text if digits is None else format(mean, form)} ± {error:{form}}"
    return text + (f" ({missing:.0f} not finite)" if missing else "")


def rank(runs: Runs, *, score: str = "nll", over: Iterable[str] | None = None) -> Ranking:
    """Return the settings of runs, ranked on each data set by the mean of their validation scores.

    Those with fewer finite scores than others of their data set follow after these: to fail, or to
    diverge, on the hard repetitions is no merit.

    :param over: the axes of which the levels are repetitions; those of `REPETITIONS` by default.
    """
    table, levels = runs.table, runs.levels
    _require_score(table, score)
    names = list(levels)
    if over is None:
        over = REPETITIONS
    elif unknown := [name for name in over if name not in names]:
        raise ValueError(
            f"over names {', '.join(unknown)}; the axes are {', '.join(names) or 'none'}."
        )
    repeated = [name for name in names if name in over]
    constant = {name: levels[name].iloc[0] for name in names if levels[name].nunique() == 1}
    of_data = [name for name in names if re.match(r"data(\.|$)", name)]
    axes = [name for name in names if name not in {*repeated, *constant, *of_data}]
    data = _data_sets(table["data"], levels[[name for name in of_data if name not in repeated]])
    keys = pd.concat([data, levels[axes]], axis="columns")
    number = keys.groupby(list(keys), sort=False).ngroup()
    settings = keys.drop_duplicates(ignore_index=True)
    done = table["status"] == "done"
    with np.errstate(all="ignore"):
        groups = _measures(table, score).where(done).groupby(number)
        n, means, errors = groups.count(), groups.mean(), groups.sem()
    places = pd.DataFrame(
        {
            "rank": _ranks(settings["data"], means.iloc[:, 0], n.iloc[:, 0], ORIENTATION[score]),
            "first": table["name"].where(done).groupby(number).first().fillna(""),
            "runs": done.groupby(number).sum(),
            "failed": (~done).groupby(number).sum(),
        }
    )
    missing = n.rsub(places["runs"], axis="index")
    ordered = {"data": _ordered(data), **{name: _ordered(levels[name]) for name in axes}}
    by_data = settings["data"].map(ordered["data"].index)
    order = pd.DataFrame({"rank": places["rank"].replace(0, math.inf), "data": by_data})
    order = order.sort_values(["rank", "data"], kind="stable")
    return Ranking(
        score,
        ORIENTATION[score],
        ordered,
        repeated,
        {name: level for name, level in constant.items() if name not in of_data},
        *(
            part.loc[order.index].reset_index(drop=True)
            for part in (settings, places, means, errors, missing)
        ),
    )


def effects(ranking: Ranking) -> dict[str, pd.DataFrame]:
    """Return the marginal effects of the levels of each axis on the validation score.

    Each level has the `mean`, its standard `error`, the number `n` and the `median`, over settings,
    of the score less the median of its data set; and the number of data sets on which it is `best`.
    """
    settings, scores = ranking.settings, ranking.means.iloc[:, 0]
    found = {}
    with np.errstate(all="ignore"):
        shift = scores - scores.groupby(settings["data"]).transform("median")
        shift = shift.replace([np.inf, -np.inf], np.nan)
        for axis in ranking.axes:
            is_best = (ranking.places["rank"] == 1).groupby(settings[axis]).sum()
            of_level = shift.groupby(settings[axis]).agg(["mean", "sem", "count", "median"])
            of_level.columns = ["mean", "error", "n", "median"]
            found[axis] = of_level.assign(best=is_best).reindex(ranking.levels[axis])
    return found


def _require_score(table: pd.DataFrame, score: str) -> None:
    found = {name.partition(".")[2] for name in table if name.startswith(("validation.", "test."))}
    known = [name for name in ORIENTATION if name in found or not found]
    if score not in known:
        raise ValueError(
            f"score is {score!r}; these runs can be ranked by {', '.join(known) or 'no score'}."
        )


def _data_sets(data: pd.Series, levels: pd.DataFrame) -> pd.Series:
    """Return the data set of each run: its name, and what else distinguishes it."""
    names = data.copy()
    for axis, level in levels.items():
        if (level.groupby(data).nunique() > 1).any():  # the name does not say it
            names += f", {axis} " + level
    return names


def _ordered(levels: Iterable[str]) -> list[str]:
    """Return levels in order: numbers by their values, and in texts, too."""

    def key(level: str) -> tuple[bool, float, list[tuple[int, str]]]:
        words = [(int(n or 0), word) for n, word in re.findall(r"([0-9]{1,99})|([^0-9]+)", level)]
        try:
            return False, float(level), words
        except ValueError:
            return True, 0.0, words

    return sorted(set(levels), key=key)


def _measures(table: pd.DataFrame, score: str) -> pd.DataFrame:
    """Return the values of each run that are averaged: the scores, and what some runs have."""
    columns = {f"{part}.{score}": f"{part} {score}" for part in ("validation", "test")}
    columns |= {f"test.{name}": f"test {name}" for name in SHOWN if name != score}
    found = table.reindex(columns=[*columns, "seconds"]).astype(float).rename(columns=columns)
    scores, others = found.iloc[:, :2], found.iloc[:, 2:]
    return scores.join(others.dropna(axis="columns", how="all"))


def _ranks(data: pd.Series, scores: pd.Series, n: pd.Series, orientation: str) -> pd.Series:
    """Return the place of each setting on its data set; 0 without a finite score."""
    incomplete = n < n.groupby(data).transform("max")
    better = -scores if orientation == "higher" else scores
    table = pd.DataFrame({"data": data, "incomplete": incomplete, "score": better})[n > 0]
    ranked = table.sort_values(["incomplete", "score"], kind="stable")
    return (ranked.groupby("data").cumcount() + 1).reindex(data.index, fill_value=0)

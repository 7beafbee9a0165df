"""Settings and their repetitions: means, ranks by validation, and the effect of each axis."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from .report_runs import Run, text

REPETITIONS = ("split.index", "seed", "data.seed")
"""Axes whose levels are repetitions of the same setting."""

ORIENTATION = {
    **dict.fromkeys(("nll", "rmse", "mae", "crps", "width", "calibration_error"), "lower"),
    **dict.fromkeys(("brier", "ece", "conformal_width", "conformal_size"), "lower"),
    "accuracy": "higher",
}
"""Which values of a score are better, as `gpflow_gvi.metrics` has it, but without TensorFlow."""

SHOWN = ("rmse", "coverage", "accuracy")
"""Test metrics that stand beside the score, where runs have them."""

NONE = "—"
"""The level of an axis that a run does not have."""


class Mean(NamedTuple):
    """The mean of the finite values."""

    mean: float
    error: float
    """Its standard error, s/√n; NaN for n = 1."""
    n: int
    missing: int
    """The number of runs without a finite value."""

    def __str__(self) -> str:
        if not self.n:
            return NONE
        shown = f"{self.mean:.4g}"
        if not math.isnan(self.error):
            digits = 1 - math.floor(math.log10(self.error)) if 1e-5 < self.error < 1e5 else None
            form = ".2g" if digits is None else f".{max(0, digits)}f"
            shown = f"{shown if digits is None else format(self.mean, form)} ± {self.error:{form}}"
        return shown + (f" ({self.missing} not finite)" if self.missing else "")


class Setting(NamedTuple):
    """A setting on a data set."""

    data: str
    levels: tuple[str, ...]
    measures: tuple[Mean, ...]
    """The means of what `Ranking.measures` names."""
    runs: list[Run]
    """Those that are done."""
    failed: int
    rank: int | None
    """Its place on its data set by validation; None without a score."""

    @property
    def validation(self) -> Mean:
        """The mean of the validation scores."""
        return self.measures[0]

    @property
    def test(self) -> Mean:
        """The mean of the test scores."""
        return self.measures[1]


class Effect(NamedTuple):
    """The effect of a level on the validation score."""

    level: str
    shift: Mean
    """Over settings, of the score less the median of its data set."""
    median: float
    """The median of the same."""
    best: int
    """The number of data sets whose best setting has the level."""


class Ranking(NamedTuple):
    """All settings, by rank."""

    score: str
    orientation: str
    axes: list[str]
    levels: dict[str, list[str]]
    """Of "data" and of each axis, in order."""
    measures: list[str]
    """The names of the columns with means: the two of the score first."""
    repeated: list[str]
    constant: dict[str, str]
    settings: list[Setting]

    @property
    def best(self) -> dict[str, Setting]:
        """Of each data set the best setting by validation."""
        first = {setting.data: setting for setting in self.settings if setting.rank == 1}
        return {data: first[data] for data in self.levels["data"] if data in first}


def rank(runs: Sequence[Run], *, score: str = "nll", over: Iterable[str] | None = None) -> Ranking:
    """Return the settings of runs, ranked on each data set by the mean of their validation scores.

    Those with fewer finite scores than others of their data set follow after these: to fail, or to
    diverge, on the hard repetitions is no merit.

    :param runs: the runs.
    :param score: the metric.
    :param over: the axes of which the levels are repetitions; those of `REPETITIONS` by default.
    """
    _require_score(runs, score)
    names = list(dict.fromkeys(name for run in runs for name in run.axes))
    if over is None:
        over = REPETITIONS
    elif unknown := [name for name in over if name not in names]:
        raise ValueError(
            f"over names {', '.join(unknown)}; the axes are {', '.join(names) or 'none'}."
        )
    repeated = [name for name in names if name in over]
    levels = {name: [_level(run, name) for run in runs] for name in names}
    constant = {name: of[0] for name, of in levels.items() if len(set(of)) == 1}
    of_data = [name for name in names if re.match(r"data(\.|$)", name)]
    axes = [name for name in names if name not in {*repeated, *constant, *of_data}]
    data = _data_sets(runs, levels, [name for name in of_data if name not in repeated])
    groups = pd.DataFrame(dict(enumerate([data, *(levels[name] for name in axes)])))
    values = _measures(runs, score)
    return Ranking(
        score=score,
        orientation=ORIENTATION[score],
        axes=axes,
        levels={"data": _ordered(data), **{name: _ordered(levels[name]) for name in axes}},
        measures=list(values),
        repeated=repeated,
        constant={name: level for name, level in constant.items() if name not in of_data},
        settings=_settings(runs, groups, values, ORIENTATION[score]),
    )


def effects(ranking: Ranking) -> dict[str, list[Effect]]:
    """Return of each axis the marginal effects of its levels on the validation score."""
    settings = [setting for setting in ranking.settings if setting.rank is not None]
    data = [setting.data for setting in settings]
    scores = pd.Series([setting.validation.mean for setting in settings], dtype=float)
    with np.errstate(all="ignore"):
        shift = scores - scores.groupby(data).transform("median")
    found = {}
    for number, axis in enumerate(ranking.axes):
        levels = ranking.levels[axis]
        at = [setting.levels[number] for setting in settings]
        best = [setting.levels[number] for setting in ranking.best.values()]
        medians = shift.groupby(at).median().reindex(levels)
        means = _means(shift, at, levels)
        found[axis] = [
            Effect(level, mean, float(median), best.count(level))
            for level, mean, median in zip(levels, means, medians, strict=True)
        ]
    return found


def _require_score(runs: Sequence[Run], score: str) -> None:
    found = {name for run in runs for part in (run.validation, run.test) for name in part}
    known = [name for name in ORIENTATION if name in found or not found]
    if score not in known:
        raise ValueError(
            f"score is {score!r}; these runs can be ranked by {', '.join(known) or 'no score'}."
        )


def _level(run: Run, axis: str) -> str:
    return text(run.axes[axis]) if axis in run.axes else NONE


def _data_sets(runs: Sequence[Run], levels: dict[str, list[str]], axes: Iterable[str]) -> list[str]:
    """Return the data set of each run: its name, and what else tells it from others."""
    names = [run.data for run in runs]
    for axis in axes:
        pairs = set(zip((run.data for run in runs), levels[axis], strict=True))
        if len(pairs) > len({data for data, _ in pairs}):  # the name does not say it
            names = [
                f"{name}, {axis} {level}" for name, level in zip(names, levels[axis], strict=True)
            ]
    return names


def _ordered(levels: Iterable[str]) -> list[str]:
    def key(level: str) -> tuple[bool, float, list[tuple[int, str]]]:
        words = [(int(n or 0), word) for n, word in re.findall(r"([0-9]{1,99})|([^0-9]+)", level)]
        try:
            return False, float(level), words
        except ValueError:
            return True, 0.0, words

    return sorted(set(levels), key=key)


def _measures(runs: Sequence[Run], score: str) -> pd.DataFrame:
    """Return the values of each run that are averaged: the scores, and what some runs have."""
    others = [name for name in SHOWN if name != score]
    found = {
        f"validation {score}": [run.validation.get(score, np.nan) for run in runs],
        f"test {score}": [run.test.get(score, np.nan) for run in runs],
        **{f"test {name}": [run.test.get(name, np.nan) for run in runs] for name in others},
        "seconds": [run.seconds for run in runs],
    }
    frame = pd.DataFrame(found, dtype=float)
    return frame[[*frame.columns[:2], *(c for c in frame.columns[2:] if frame[c].notna().any())]]


def _means(values: pd.Series, by: Sequence[object], index: Sequence[object]) -> list[Mean]:
    """Return the mean of the values of each group of an index."""
    with np.errstate(all="ignore"):
        groups = values.where(np.isfinite(values)).groupby(by)
        n = groups.count()
        found = {"mean": groups.mean(), "error": groups.sem(), "n": n, "missing": groups.size() - n}
    table = pd.DataFrame(found).reindex(index).fillna({"n": 0, "missing": 0})
    return [Mean(*row) for row in table.astype({"n": int, "missing": int}).itertuples(index=False)]


def _settings(
    runs: Sequence[Run], groups: pd.DataFrame, values: pd.DataFrame, orientation: str
) -> list[Setting]:
    """Return the settings, by rank.

    :param groups: of each run the data set and the levels.
    :param values: of each run what is averaged.
    """
    number = groups.groupby(list(groups), sort=False).ngroup().to_numpy()
    done = np.array([run.error is None for run in runs])
    keys = list(groups.drop_duplicates().itertuples(index=False, name=None))
    of_setting: list[list[Run]] = [[] for _ in keys]
    for at, run in zip(number, runs, strict=True):
        if run.error is None:
            of_setting[at].append(run)
    failed = np.bincount(number[~done], minlength=len(keys)).tolist()
    columns = [_means(values[c][done], number[done], range(len(keys))) for c in values]
    ranks = _ranks([key[0] for key in keys], columns[0], orientation)
    settings = [
        Setting(key[0], key[1:], measures, of, count, place)
        for key, measures, of, count, place in zip(
            keys, zip(*columns, strict=True), of_setting, failed, ranks, strict=True
        )
    ]
    order = {data: place for place, data in enumerate(_ordered(key[0] for key in keys))}
    return sorted(settings, key=lambda at: (at.rank or math.inf, order[at.data]))


def _ranks(data: list[str], scores: list[Mean], orientation: str) -> list[int | None]:
    """Return the place of each setting on its data set."""
    frame = pd.DataFrame(scores)
    frame["data"] = data
    frame["incomplete"] = frame["n"] < frame.groupby("data")["n"].transform("max")
    frame["mean"] *= -1.0 if orientation == "higher" else 1.0
    ranked = frame[frame["n"] > 0].sort_values(["incomplete", "mean"], kind="stable")
    places = (ranked.groupby("data").cumcount() + 1).to_dict()
    return [places.get(number) for number in range(len(data))]

"""Settings and their repetitions: means, ranks by validation, and what each axis does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .report_runs import Run, text

Array = np.ndarray[Any, Any]

REPETITIONS = ("split.index", "seed", "data.seed")
"""Axes whose levels are repetitions of the same setting."""

ORIENTATION = {
    **dict.fromkeys(("nll", "rmse", "mae", "crps", "width", "calibration_error"), "lower"),
    **dict.fromkeys(("brier", "ece", "conformal_width", "conformal_size"), "lower"),
    "accuracy": "higher",
}
"""Which values of a score are better, as `gpflow_gvi.metrics` has it, but without TensorFlow."""

NONE = "—"
"""The level of an axis that a run does not have."""


class Mean(NamedTuple):
    """The mean of what is finite."""

    mean: float
    error: float
    """Its standard error, s/√n; NaN for n = 1."""
    n: int
    missing: int
    """Of how many there was no finite value."""

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
    validation: Mean
    test: Mean
    runs: list[Run]
    """Those that are done."""
    failed: int
    rank: int | None
    """Its place on its data set by validation; None without a score."""


class Effect(NamedTuple):
    """What a level does to the validation score."""

    level: str
    shift: Mean
    """Over settings, of the score less the median of its data set."""
    median: float
    """The median of the same."""
    best: int
    """How many data sets have it in their best setting."""


class Ranking(NamedTuple):
    """All settings, by rank."""

    score: str
    orientation: str
    axes: list[str]
    levels: dict[str, list[str]]
    """Of "data" and of each axis, in order."""
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

    keys = list(zip(data, *(levels[name] for name in axes), strict=True))
    index = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    groups: list[list[Run]] = [[] for _ in index]
    failed = np.zeros(len(index), int)
    for key, run in zip(keys, runs, strict=True):
        if run.error is None:
            groups[index[key]].append(run)
        else:
            failed[index[key]] += 1
    places = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    means = [
        _means(places, [getattr(run, part).get(score, np.nan) for g in groups for run in g], groups)
        for part in ("validation", "test")
    ]
    settings = [
        Setting(key[0], key[1:], validation, test, group, int(count), None)
        for key, validation, test, group, count in zip(index, *means, groups, failed, strict=True)
    ]
    return Ranking(
        score=score,
        orientation=ORIENTATION[score],
        axes=axes,
        levels={"data": _ordered(data), **{name: _ordered(levels[name]) for name in axes}},
        repeated=repeated,
        constant={name: level for name, level in constant.items() if name not in of_data},
        settings=_ranked(settings, -1.0 if ORIENTATION[score] == "higher" else 1.0),
    )


def effects(ranking: Ranking) -> dict[str, list[Effect]]:
    """Return of each axis the marginal effects of its levels on the validation score."""
    settings = [setting for setting in ranking.settings if setting.rank is not None]
    scores = np.array([setting.validation.mean for setting in settings])
    data = np.array([ranking.levels["data"].index(setting.data) for setting in settings], int)
    shift = np.empty_like(scores)
    for place in np.unique(data):
        of_data = scores[data == place]
        with np.errstate(all="ignore"):
            shift[data == place] = of_data - np.median(of_data)
    found = {}
    for number, axis in enumerate(ranking.axes):
        index = {level: place for place, level in enumerate(ranking.levels[axis])}
        places = np.array([index[setting.levels[number]] for setting in settings], int)
        best = [setting.levels[number] for setting in ranking.best.values()]
        found[axis] = [
            Effect(
                level,
                mean,
                float(np.median(shift[places == index[level]])) if mean.n else np.nan,
                best.count(level),
            )
            for level, mean in zip(index, _means(places, shift, index), strict=True)
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


def _means(places: Array, values: Any, groups: Sequence[Any] | dict[str, Any]) -> list[Mean]:
    """Return the mean of the values at each place."""
    size, values = len(groups), np.asarray(values, float)
    finite = np.isfinite(values)
    at, x = places[finite], values[finite]
    with np.errstate(all="ignore"):
        count = np.bincount(at, minlength=size)
        mean = np.bincount(at, x, size) / count
        error = np.sqrt(np.bincount(at, (x - mean[at]) ** 2, size) / (count - 1.0) / count)
    missing = np.bincount(places, minlength=size) - count
    columns = (column.tolist() for column in (mean, error, count, missing))
    return [Mean(*row) for row in zip(*columns, strict=True)]


def _ranked(settings: list[Setting], sign: float) -> list[Setting]:
    most: dict[str, int] = {}
    for setting in settings:
        most[setting.data] = max(most.get(setting.data, 0), setting.validation.n)
    ranked = [setting for setting in settings if setting.validation.n]
    ranked.sort(key=lambda at: (at.validation.n < most[at.data], sign * at.validation.mean))
    places = dict.fromkeys(most, 0)
    found = []
    for setting in ranked:
        places[setting.data] += 1
        found.append(setting._replace(rank=places[setting.data]))
    order = {data: place for place, data in enumerate(_ordered(most))}
    found.sort(key=lambda setting: (setting.rank, order[setting.data]))
    return [*found, *(setting for setting in settings if not setting.validation.n)]

"""A sweep: a base experiment, and axes along which it varies.

The settings of each combination replace those of the base; the result must be a valid experiment.
`docs/experiments.md` shows a file with everything that `SweepFile` describes.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, model_validator

from ..errors import MAX_SHOWN, short_repr
from .config import Experiment, read
from .parts.part import Part
from .reading import ConfigError, Document
from .run_folder import name_of

Level = str | int | float | bool | None
"""The name of a value of an axis: the value itself, if that is a number or a text."""

MAX_RUNS = 20_000
"""The maximal number of runs of a sweep."""


Values = Annotated[list[Any] | dict[str, Any], Field(min_length=1)]
"""Values by their names, or a list of values, which name themselves."""


class SweepFile(Part):
    """The content of a sweep's file."""

    base: str | dict[str, Any]
    """The path of an experiment's file, from here, or an experiment."""
    axes: dict[str, Values] = Field(default_factory=dict)
    """Values by the paths of keys; each axis is crossed with all the others."""
    variants: dict[str, Annotated[dict[str, dict[str, Any]], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """Axes of which a level sets several keys: by axis and level the values of these."""
    exclude: tuple[dict[str, Any], ...] = ()
    """Combinations that are left out: by axis the name of a level, or of several."""

    @model_validator(mode="after")
    def _names_agree(self) -> SweepFile:
        levels = self.levels()
        if (count := math.prod(map(len, levels.values()))) > MAX_RUNS:
            raise ValueError(f"it describes {count} runs; the maximal number is {MAX_RUNS}")
        for name in self.axes:
            if name in self.variants:
                raise ValueError(f"{short_repr(name)} is an axis twice; name it once")
        for excluded in self.exclude:
            for name, of in excluded.items():
                if name not in levels:
                    axes = ", ".join(map(short_repr, levels))
                    raise ValueError(f"exclude names {short_repr(name)}; the axes are {axes}")
                known = [level for level, _ in levels[name]]
                for level in of if isinstance(of, list) else [of]:
                    if level not in known:
                        raise ValueError(
                            f"exclude has {name}: {short_repr(level)}; the levels are "
                            f"{short_repr(known)}"
                        )
        return self

    def levels(self) -> dict[str, list[tuple[Level, dict[str, Any]]]]:
        """Return the levels of each axis: their names, and values by the paths of keys."""
        return {
            **{axis: [(k, {axis: v}) for k, v in _named(of)] for axis, of in self.axes.items()},
            **{axis: list(variants.items()) for axis, variants in self.variants.items()},
        }

    def excludes(self, axes: Mapping[str, Level]) -> bool:
        """Return True if a combination is left out."""
        return any(
            all(axes[name] in (of if isinstance(of, list) else [of]) for name, of in rule.items())
            for rule in self.exclude
        )


def _named(values: list[Any] | dict[str, Any]) -> list[tuple[Level, Any]]:
    """Return values with their names; in a list each is its own name, if need be as JSON."""
    if isinstance(values, dict):
        return list(values.items())
    return [
        (value if isinstance(value, Level) else json.dumps(value, ensure_ascii=False), value)
        for value in values
    ]


class PlannedRun(NamedTuple):
    """One run of a sweep."""

    axes: dict[str, Level]
    """The names of the levels, by axis."""
    experiment: Experiment

    @property
    def name(self) -> str:
        """The name of its folder."""
        return name_of(self.experiment)

    @property
    def data(self) -> str:
        """A name of its data set."""
        return self.experiment.data.label


def read_sweep(path: str | Path) -> list[PlannedRun]:
    """Return the runs that a sweep's file describes, each of them possible."""
    document = Document.read(path)
    if "base" not in document.value and "data" in document.value:
        raise ConfigError(f"{path} is the file of one experiment: gpflow-gvi run {path}.")
    file = document.validated(SweepFile)
    base = file.base
    if isinstance(base, str):
        base_path = Path(path).parent / base
        try:
            read(base_path)  # an experiment by itself
        except ConfigError as error:
            raise ConfigError(f"{path}: base: {error}") from error
        base = Document.read(base_path).value  # defaults are those of the data of each run
    runs = list(_planned(file, base, str(path)))
    if not runs:
        raise ConfigError(f"{path}: exclude leaves no run.")
    _require_different(runs, str(path))
    return runs


def _require_different(runs: Sequence[PlannedRun], source: str) -> None:
    """Raise if two runs have the same settings, and so one folder and one result."""
    found: dict[Experiment, dict[str, Level]] = {}
    for axes, experiment in runs:
        other = found.setdefault(experiment, axes)
        if other is not axes:
            differ = [name for name in axes if other[name] != axes[name]] or list(axes)
            where = (_said({name: of[name] for name in differ}) for of in (other, axes))
            raise ConfigError(
                f"{source}: where {' and where '.join(where)} all settings are the same. Leave out "
                "one of the levels, or exclude one of the combinations."
            )


def _said(axes: Mapping[str, Level]) -> str:
    return ", ".join(f"{name} is {str(level)[:MAX_SHOWN]}" for name, level in axes.items())


def sample(runs: Sequence[PlannedRun], count: int, seed: int = 0) -> list[PlannedRun]:
    """Return a number of the runs, drawn at random, in their order."""
    if not 1 <= count <= len(runs):
        raise ConfigError(f"--sample is {count}; it must be from 1 to {len(runs)}, the runs.")
    chosen = np.random.default_rng(seed).choice(len(runs), count, replace=False)
    return [runs[i] for i in sorted(chosen)]


def _planned(file: SweepFile, base: dict[str, Any], source: str) -> Iterator[PlannedRun]:
    levels = file.levels()
    for combination in itertools.product(*levels.values()):
        axes = {axis: level for axis, (level, _) in zip(levels, combination, strict=True)}
        if file.excludes(axes):
            continue
        values = copy.deepcopy(base)
        for _, settings in combination:
            for key, value in settings.items():
                _set(values, key, copy.deepcopy(value), source)
        try:
            yield PlannedRun(axes, Experiment.model_validate(values))
        except ValidationError:
            text = json.dumps(values)  # which is YAML, on one line
            where = f"{source}, where {_said(axes)}" if axes else f"{source}, base"
            Document(text, where).validated(Experiment)


def _set(values: Any, path: str, value: Any, source: str) -> None:
    """Set the value at a path of keys and numbers of items; missing mappings are made."""
    *way, last = path.split(".")
    for step in way:
        if isinstance(values, list):
            values = values[_item(values, step, path, source)]
            continue
        inner = values.setdefault(step, {})
        if isinstance(inner, str):  # the short form of a part
            values[step] = inner = {"kind": inner}
        values = inner
        if not isinstance(values, dict | list):
            raise ConfigError(
                f"{source}: {path} leads through {step}, which is {short_repr(values)}."
            )
    if isinstance(values, list):
        values[_item(values, last, path, source)] = value
    else:
        values[last] = value


def _item(values: list[Any], step: str, path: str, source: str) -> int:
    if not step.isdigit() or int(step) >= len(values):
        raise ConfigError(f"{source}: {path} has {step} where it needs a number < {len(values)}.")
    return int(step)

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
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, model_validator

from ..errors import shown
from .config import Experiment, read
from .parts.base import Count, Flag, Part, Whole
from .reading import ConfigError, Document
from .run_folder import name_of

Level = str | int | float | bool | None
"""The name of a value of an axis: the value itself, if that is a number or a text."""

MAX_RUNS = 200_000
"""The maximal number of runs of a sweep."""


Values = Annotated[list[Any] | dict[str, Any], Field(min_length=1)]
"""Values by their names, or a list of values, which name themselves."""


class Uniform(Part):
    """A number between two others; with `log` its logarithm is uniform."""

    kind: Literal["uniform", "integer"]
    low: float
    high: float
    log: Flag = False

    @model_validator(mode="after")
    def _is_a_range(self) -> Uniform:
        least = 0.5 if self.kind == "integer" else 0.0
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"low is {self.low} and high={self.high}; they must be nearer")
        if not self.low < self.high or (self.log and self.low <= least):
            positive = " and positive" if self.log else ""
            raise ValueError(f"low is {self.low}; it must be less than high={self.high}{positive}")
        return self

    def draw(self, random: np.random.Generator) -> float | int:
        """Return a number."""
        half = 0.5 if self.kind == "integer" else 0.0  # so that the ends are as likely as others
        ends = (self.low - half, self.high + half)
        low, high = np.log(ends) if self.log else ends
        value = random.uniform(low, high)
        value = float(np.exp(value)) if self.log else value
        # Six digits are enough, and can be read in a table.
        return round(value) if self.kind == "integer" else float(f"{value:.6g}")


class Choice(Part):
    """One of several values, each as likely."""

    kind: Literal["choice"] = "choice"
    values: Annotated[tuple[Any, ...], Field(min_length=1)]

    def draw(self, random: np.random.Generator) -> Any:
        """Return a value."""
        return self.values[random.integers(len(self.values))]


class RandomDraws(Part):
    """Settings that are drawn together."""

    runs: Annotated[Count, Field(le=MAX_RUNS)]
    seed: Whole = 0
    draw: Annotated[
        dict[str, Annotated[Uniform | Choice, Field(discriminator="kind")]], Field(min_length=1)
    ]
    """How each is drawn, by the paths of keys."""

    def values(self) -> dict[str, list[Any]]:
        """Return a value for each run, by paths of keys."""
        random = np.random.default_rng(self.seed)
        rows = [[how.draw(random) for how in self.draw.values()] for _ in range(self.runs)]
        return dict(zip(self.draw, map(list, zip(*rows, strict=True)), strict=True))


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
    zip: tuple[Annotated[dict[str, Values], Field(min_length=1)], ...] = ()
    """Keys that change together, which are one axis."""
    random: RandomDraws | None = None
    """So are settings that are drawn."""
    exclude: tuple[dict[str, Any], ...] = ()
    """Combinations that are left out: by axis the name of a level, or of several."""

    @model_validator(mode="after")
    def _names_agree(self) -> SweepFile:
        dimensions = self.dimensions()
        if (count := math.prod(map(len, dimensions))) > MAX_RUNS:
            raise ValueError(f"it describes {count} runs; the maximal number is {MAX_RUNS}")
        names = [name for axis in dimensions for name in axis[0].axes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is an axis twice; name it once")
        for excluded in self.exclude:
            for name in excluded:
                if name not in names:
                    raise ValueError(f"exclude names {name}; the axes are {', '.join(names)}")
        for zipped in self.zip:
            lengths = {name: len(values) for name, values in zipped.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"zip has values of different numbers, {lengths}")
        return self

    def dimensions(self) -> list[list[AxisValue]]:
        """Return the values of each axis that is crossed."""
        found = [_together({name: values}) for name, values in self.axes.items()]
        for name, variants in self.variants.items():
            found.append([AxisValue({name: label}, of) for label, of in variants.items()])
        found += [_together(zipped) for zipped in self.zip]
        if self.random is not None:
            found.append(_together(self.random.values()))
        return found

    def excludes(self, axes: Mapping[str, Level]) -> bool:
        """Return True if a combination is left out."""
        return any(
            all(axes[name] in (of if isinstance(of, list) else [of]) for name, of in rule.items())
            for rule in self.exclude
        )


class AxisValue(NamedTuple):
    """One value of an axis, or of several that are zipped or drawn together."""

    axes: dict[str, Level]
    """The names of the levels, by axis."""
    settings: dict[str, Any]
    """Values by the paths of keys."""


def _together(values: Mapping[str, list[Any] | dict[str, Any]]) -> list[AxisValue]:
    """Return the values of keys that change together, of which there may be one alone."""
    columns = [_with_labels(of) for of in values.values()]
    return [
        AxisValue(
            {name: label for name, (label, _) in zip(values, row, strict=True)},
            {name: value for name, (_, value) in zip(values, row, strict=True)},
        )
        for row in zip(*columns, strict=False)  # other lengths are refused with a message
    ]


def _with_labels(values: list[Any] | dict[str, Any]) -> list[tuple[Level, Any]]:
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
    """Return the runs that a sweep's file describes, each of them possible.

    :param path: the file.
    """
    document = Document.read(path)
    if "base" not in document.value and "data" in document.value:
        raise ConfigError(f"{path} is the file of one experiment: gpflow-gvi run {path}.")
    file = document.validated(SweepFile)
    base = file.base
    if isinstance(base, str):
        try:
            read_base = read(Path(path).parent / base)
        except ConfigError as error:
            raise ConfigError(f"{path}: base: {error}") from error
        base = read_base.model_dump(mode="json", exclude_unset=True)
    runs = list(_planned(file, base, str(path)))
    if not runs:
        raise ConfigError(f"{path}: exclude leaves no run.")
    return runs


def sample(runs: Sequence[PlannedRun], count: int, seed: int = 0) -> list[PlannedRun]:
    """Return a number of the runs, drawn at random, in their order."""
    if not 1 <= count <= len(runs):
        raise ConfigError(f"--sample is {count}; it must be from 1 to {len(runs)}, the runs.")
    chosen = np.random.default_rng(seed).choice(len(runs), count, replace=False)
    return [runs[i] for i in sorted(chosen)]


def _planned(file: SweepFile, base: dict[str, Any], source: str) -> Iterator[PlannedRun]:
    kept: dict[Part, Part] = {}
    for combination in itertools.product(*file.dimensions()):
        axes = {name: level for value in combination for name, level in value.axes.items()}
        if file.excludes(axes):
            continue
        values = copy.deepcopy(base)
        for part in combination:
            for key, value in part.settings.items():
                _set(values, key, copy.deepcopy(value), source)
        try:
            yield PlannedRun(axes, _with_shared_parts(Experiment.model_validate(values), kept))
        except ValidationError:
            text = json.dumps(values)  # which is YAML, on one line
            levels = ", ".join(f"{name} is {level}" for name, level in axes.items())
            where = f"{source}, where {levels}" if axes else f"{source}, base"
            Document(text, where).validated(Experiment)


def _with_shared_parts(experiment: Experiment, kept: dict[Part, Part]) -> Experiment:
    """Return an experiment whose parts are the same objects as equal parts of other experiments.

    Each has some settings of its own, and a hundred thousand of them have to be in memory.
    """
    values = {
        name: kept.setdefault(value, value) if isinstance(value, Part) else value
        for name, value in experiment
    }
    return Experiment.model_construct(experiment.model_fields_set, **values)


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
            raise ConfigError(f"{source}: {path} leads through {step}, which is {shown(values)}.")
    if isinstance(values, list):
        values[_item(values, last, path, source)] = value
    else:
        values[last] = value


def _item(values: list[Any], step: str, path: str, source: str) -> int:
    if not step.isdigit() or int(step) >= len(values):
        raise ConfigError(f"{source}: {path} has {step} where it needs a number < {len(values)}.")
    return int(step)

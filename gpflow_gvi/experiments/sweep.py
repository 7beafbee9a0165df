"""A sweep: a base experiment, and axes along which it varies.

    base: experiment.yaml                  # or the experiment itself
    axes:                                  # each is crossed with all the others
      data.number: [0, 1, 2]               # the path of a key, and its values,
      regulariser.inducing:                # or values with names
        root: {power: 2}
        cube root: {power: 3}
    variants:                              # axes whose levels set several keys at once
      method:
        linear in N: {divergence: projected_renyi, training.batch_size: 200}
        exact: {divergence: gaussian_wasserstein, training.batch_size: 100}
    zip:                                   # keys that walk in step are one axis
      - optimiser.learning_rate: [0.001, 0.01]
        training.epochs: [40, 10]
    random:                                # so are settings that are drawn
      runs: 20
      draw:
        mean.layers.0.units: {kind: integer, low: 5, high: 100, log: true}
    exclude:                               # combinations that are left out, by the names of levels
      - {data.number: [1, 2], method: exact}

What such a combination sets is put into the base; it must be a possible experiment.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, model_validator

from .config import Experiment, read
from .parts import BY_KIND, Count, Flag, Part, Whole
from .reading import ConfigError, Document

Level = str | int | float | bool | None
"""The name of a value of an axis: the value itself, if that is a number or a text."""

Values = Annotated[list[Any] | dict[str, Any], Field(min_length=1)]
"""Values, or values by their names."""


class Uniform(Part):
    """A number between two others; with `log` its logarithm is uniform."""

    kind: Literal["uniform", "integer"]
    low: float
    high: float
    log: Flag = False

    @model_validator(mode="after")
    def _is_a_range(self) -> Uniform:
        least = 0.5 if self.kind == "integer" else 0.0
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


class Random(Part):
    """Settings that are drawn together."""

    runs: Count
    seed: Whole = 0
    draw: Annotated[dict[str, Annotated[Uniform | Choice, BY_KIND]], Field(min_length=1)]


class SweepFile(Part):
    """What a sweep's file says."""

    base: str | dict[str, Any]
    """The path of an experiment's file, from here, or an experiment."""
    axes: dict[str, Values] = Field(default_factory=dict)
    variants: dict[str, Annotated[dict[str, dict[str, Any]], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    zip: tuple[Annotated[dict[str, Values], Field(min_length=1)], ...] = ()
    random: Random | None = None
    exclude: tuple[dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _names_agree(self) -> SweepFile:
        names = [name for axis in self.dimensions() for name in axis[0].axes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} is an axis twice; name it once")
        for excluded in self.exclude:
            for name in excluded:
                if name not in names:
                    raise ValueError(f"exclude names {name}; the axes are {', '.join(names)}")
        for walk in self.zip:
            lengths = {name: len(values) for name, values in walk.items()}
            if len(set(lengths.values())) > 1:
                raise ValueError(f"zip has values of different numbers, {lengths}")
        return self

    def dimensions(self) -> list[list[Step]]:
        """Return what is crossed: of each axis its steps."""
        found = [[_step((name, level)) for level in _levels(v)] for name, v in self.axes.items()]
        for name, variants in self.variants.items():
            found.append([Step({name: level}, settings) for level, settings in variants.items()])
        for walk in self.zip:
            columns = [[(name, level) for level in _levels(v)] for name, v in walk.items()]
            found.append([_step(*pairs) for pairs in zip(*columns, strict=False)])
        if self.random is not None:
            generator = np.random.default_rng(self.random.seed)
            found.append(
                [
                    _step(
                        *(
                            (name, (_label(value), value))
                            for name, how in self.random.draw.items()
                            for value in [how.draw(generator)]
                        )
                    )
                    for _ in range(self.random.runs)
                ]
            )
        return found

    def excludes(self, axes: Mapping[str, Level]) -> bool:
        """Return whether a combination is to be left out."""
        return any(
            all(axes[name] in (of if isinstance(of, list) else [of]) for name, of in rule.items())
            for rule in self.exclude
        )


class Step(NamedTuple):
    """One value of what is crossed."""

    axes: dict[str, Level]
    """The names of the levels, by axis."""
    settings: dict[str, Any]
    """Values by the paths of keys."""


class Point(NamedTuple):
    """One run of a sweep."""

    axes: dict[str, Level]
    """The names of the levels, by axis."""
    experiment: Experiment


def read_sweep(path: str | Path) -> list[Point]:
    """Return the runs that a sweep's file describes, each of them possible.

    :param path: the file.
    """
    document = Document.read(path)
    file = document.validated(SweepFile)
    base = file.base
    if isinstance(base, str):
        base = read(Path(path).parent / base).model_dump(mode="json", exclude_unset=True)
    points = list(_points(file, base, str(path)))
    if not points:
        raise ConfigError(f"{path}: exclude leaves no run.")
    return points


def sample(points: Sequence[Point], count: int, seed: int = 0) -> list[Point]:
    """Return so many of the runs, drawn at random, in their order."""
    if not 1 <= count <= len(points):
        raise ConfigError(f"--sample is {count}; it must be from 1 to {len(points)}, the runs.")
    chosen = np.random.default_rng(seed).choice(len(points), count, replace=False)
    return [points[i] for i in sorted(chosen)]


def _points(file: SweepFile, base: dict[str, Any], source: str) -> Iterator[Point]:
    for steps in itertools.product(*file.dimensions()):
        axes = {name: level for step in steps for name, level in step.axes.items()}
        if file.excludes(axes):
            continue
        values = copy.deepcopy(base)
        for step in steps:
            for key, value in step.settings.items():
                _set(values, key, copy.deepcopy(value), source)
        try:
            yield Point(axes, Experiment.model_validate(values))
        except ValidationError:
            text = json.dumps(values)  # which is YAML, on one line
            where = f"{source}, where {_sentence(axes)}" if axes else f"{source}, base"
            Document(text, where).validated(Experiment)


def _sentence(axes: Mapping[str, Level]) -> str:
    return ", ".join(f"{name} is {level}" for name, level in axes.items())


def _set(values: Any, path: str, value: Any, source: str) -> None:
    """Put a value where a path of keys and numbers of items leads, making what is not there."""
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
            raise ConfigError(f"{source}: {path} leads through {step}, which is {values!r}.")
    if isinstance(values, list):
        values[_item(values, last, path, source)] = value
    else:
        values[last] = value


def _item(values: list[Any], step: str, path: str, source: str) -> int:
    if not step.isdigit() or int(step) >= len(values):
        raise ConfigError(f"{source}: {path} has {step} where it needs a number < {len(values)}.")
    return int(step)


def _levels(values: list[Any] | dict[str, Any]) -> list[tuple[Level, Any]]:
    if isinstance(values, dict):
        return list(values.items())
    return [(_label(value), value) for value in values]


def _label(value: Any) -> Level:
    return value if isinstance(value, Level) else json.dumps(value, ensure_ascii=False)


def _step(*pairs: tuple[str, tuple[Level, Any]]) -> Step:
    return Step(
        {name: level for name, (level, _) in pairs}, {name: value for name, (_, value) in pairs}
    )

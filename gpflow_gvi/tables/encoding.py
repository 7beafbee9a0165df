"""Typed columns as inputs of a model: numbers without gaps, and categories as indicators.

Many categories have numbers, too, in the order of their names: a kernel has an effect of each where
rows with the same number are alike.

The inputs are those of scikit-learn's `SimpleImputer` and `OneHotEncoder` as plain data: a file of
theirs can only be read and written by a library that takes two seconds to import all of
scikit-learn. Rows unlike all that were learned from are known by the same values.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .columns import MAX_CATEGORIES, Columns

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

OTHERS = "others"
"""The name of the categories that are merged."""

NUMBER = "number"
"""The name of the input that tells them apart."""


class Levels(NamedTuple):
    """The categories of a column."""

    own: list[str]
    """Those with an indicator of their own, in their order."""
    are_merged: bool
    """Whether there is one for all others."""
    known: list[str]
    """All of them, sorted."""

    @classmethod
    def of(cls, values: AnyNDArray) -> Levels:
        """Return the levels of a column; of two, one says which it is."""
        levels, counts = np.unique(values, return_counts=True)
        names = [str(level) for level in levels]
        if len(names) <= MAX_CATEGORIES:
            return cls(names[1:] if len(names) == 2 else names, False, names)
        frequent = np.argsort(counts, kind="stable")[1 - MAX_CATEGORIES :]
        return cls([names[i] for i in np.sort(frequent)], True, names)


class Encoder(NamedTuple):
    """What rows are made into inputs by, and compared with: plain data, which can be saved."""

    medians: dict[str, float]
    """What stands for a missing number of a column: the median of the others."""
    limits: dict[str, tuple[float, float]]
    """The least and the greatest number of a column."""
    gaps: list[str]
    """The columns in which numbers were missing, which have an indicator of it."""
    levels: dict[str, Levels]

    @classmethod
    def of(cls, typed: pd.DataFrame, columns: Columns) -> Encoder:
        """Return the encoder of columns that are `Columns.typed`."""
        numbers = {name: typed[name] for name in columns.encoded_numbers}
        return cls(
            {n: 0.0 if each.isna().all() else float(each.median()) for n, each in numbers.items()},
            {name: (float(each.min()), float(each.max())) for name, each in numbers.items()},
            [name for name, each in numbers.items() if each.isna().any()],
            {name: Levels.of(typed[name].to_numpy(str)) for name in columns.categories},
        )

    def transform(self, typed: pd.DataFrame) -> AnyNDArray:
        """Return the inputs, [N, D]; an unknown category is one of the others, or none."""
        inputs = [typed[name].fillna(median) for name, median in self.medians.items()]
        inputs += [typed[name].isna() for name in self.gaps]
        for name, (own, are_merged, known) in self.levels.items():
            values = typed[name].to_numpy(str)
            inputs += [values == level for level in own]
            if are_merged:
                inputs += [~np.isin(values, own), _numbers_of(values, known)]
        return np.column_stack([np.asarray(each, dtype=float) for each in inputs])

    def outside(self, typed: pd.DataFrame, columns: Columns) -> AnyNDArray:
        """Return the names of the columns in which each row is unlike all of them: [N]."""
        homes = columns.homes
        beyond: dict[str, AnyNDArray] = collections.defaultdict(lambda: np.zeros(len(typed), bool))
        for name, (low, high) in self.limits.items():
            values = typed[name].to_numpy()
            gaps = np.isnan(values) & (name not in self.gaps)
            beyond[homes.get(name, name)] |= (values < low) | (values > high) | gaps
        for name, levels in self.levels.items():
            beyond[name] = ~np.isin(typed[name].to_numpy(str), levels.known)
        texts = np.full(len(typed), "", object)
        for name, rows in beyond.items():
            texts[rows] += np.where(texts[rows] == "", name, "; " + name).astype(object)
        return texts

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield the column of each input, and a name of the input."""
        yield from zip(self.medians, self.medians, strict=True)
        for name in self.gaps:
            yield name, f"missing_{name}"
        for name, (own, are_merged, _) in self.levels.items():
            for level in [*own, *[OTHERS, NUMBER] * are_merged]:
                yield name, f"{name}_{level}"

    def groups(self, columns: Columns) -> dict[str, list[int]]:
        """Return the inputs that each column of the table is made into, those of dates together."""
        homes = columns.homes
        found: dict[str, list[int]] = collections.defaultdict(list)
        for d, (name, _) in enumerate(self.names()):
            found[homes.get(name, name)].append(d)
        return dict(found)


def _numbers_of(values: AnyNDArray, known: list[str]) -> AnyNDArray:
    """Return the place of each category among those known; one that is not is beyond them all."""
    numbers = np.searchsorted(known, values)
    is_known = np.asarray(known)[np.minimum(numbers, len(known) - 1)] == values
    return np.where(is_known, numbers, len(known) + 1)

"""The ranges of the rows that a model was learned from, to detect new ones that are unlike them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from gpflow.base import AnyNDArray

    from .columns import Columns


class Seen(NamedTuple):
    """The values of each column in the rows that were learned from: plain data, to be saved."""

    limits: dict[str, tuple[float, float]]
    """The least and the greatest number."""
    has_gaps: list[str]
    """Columns of numbers with missing values."""
    levels: dict[str, list[str]]
    """The categories."""

    @classmethod
    def of(cls, typed: pd.DataFrame, columns: Columns) -> Seen:
        """Return the ranges and categories that `Columns.typed` holds."""
        numbers = {name: typed[name] for name in columns.encoded_numbers}
        return cls(
            {name: (float(each.min()), float(each.max())) for name, each in numbers.items()},
            [name for name, each in numbers.items() if each.isna().any()],
            {name: sorted(set(typed[name])) for name in columns.categories},
        )

    def outside(self, typed: pd.DataFrame) -> AnyNDArray:
        """Return the names of the columns in which each row is unlike all of them: [N]."""
        beyond: dict[str, AnyNDArray] = {}
        for name, (low, high) in self.limits.items():
            values = typed[name].to_numpy()
            gaps = np.isnan(values) & (name not in self.has_gaps)
            beyond[name] = (values < low) | (values > high) | gaps
        for name, levels in self.levels.items():
            beyond[name] = ~np.isin(typed[name].to_numpy(str), levels)
        texts = np.full(len(typed), "", object)
        for name, rows in beyond.items():
            texts[rows] += np.where(texts[rows] == "", name, "; " + name).astype(object)
        return texts

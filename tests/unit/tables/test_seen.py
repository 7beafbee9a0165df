"""Rows beyond those that were learned from, by the columns in which they are."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpflow_gvi.tables.columns import Columns, Seen


def test_rows_are_outside_in_the_columns_whose_values_are_new():
    table = pd.DataFrame({"size": [1.0, 2.0, 3.0], "gaps": [1.0, np.nan, 2.0], "kind": list("aab")})
    columns = Columns.of(table)
    seen = Seen.of(columns.typed(table), columns)
    assert list(seen.outside(columns.typed(table))) == ["", "", ""]
    new = pd.DataFrame(
        {
            "size": [1.0, 0.9, 3.1, np.nan, 9.0],
            "gaps": [np.nan, 2.0, 1.0, 1.0, -1.0],
            "kind": ["a", "b", "b", None, "c"],
        }
    )
    expected = ["", "size", "size", "size; kind", "size; gaps; kind"]
    assert list(seen.outside(columns.typed(new))) == expected

"""What is written beside the cells of a file: numbers with all digits that count."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpflow_gvi.__main__ import main
from gpflow_gvi.tables.predict import DIGITS, rounded

N = 60


def _learned(folder, table, target):
    """Write a table and what is learned from it, and return the table with its predictions."""
    table.to_csv(folder / "data.csv", index=False)
    command = ["learn", str(folder / "data.csv"), "--target", target, "--effort", "fast"]
    assert main([*command, "--predictor", "none", "--output", str(folder / "model")]) == 0
    return _predicted(folder, "data.csv")


def _predicted(folder, file):
    assert main(["predict", str(folder / "model"), str(folder / file)]) == 0
    return pd.read_csv(
        folder / file.replace(".csv", "_predicted.csv"), keep_default_na=False, dtype=str
    )


def test_predictions_of_large_numbers_differ_from_row_to_row(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.uniform(-1.0, 1.0, N)
    t = 1_700_000_000.0 + 10.0 * a + rng.normal(scale=0.3, size=N)
    table = pd.DataFrame({"a": a, "t": t})
    found = _learned(tmp_path, table, "t")
    mean, sd, low, high = (
        found[f"t_{each}"].astype(float) for each in ("mean", "sd", "lower", "upper")
    )
    assert np.all(np.abs(mean - table["t"]) < 5.0 * sd)
    assert np.all((low < mean) & (mean < high))


def test_digits_that_are_errors_of_rounding_are_left_out():
    table = pd.DataFrame({"a": [0.1 + 0.2, np.nan, 1_700_000.123], "b": ["x", "y", "z"]})
    assert rounded(table).to_csv(index=False).split() == ["a,b", "0.3,x", ",y", "1700000.123,z"]
    assert np.finfo(float).precision > DIGITS

"""The effect of each choice of the thesis, from the results of its sweep that were kept.

    gpflow-gvi sweep examples/thesis_sweep.yaml --sample 240 --folder FOLDER
    python -m benchmarks.thesis_effects --results FOLDER

Of each run its negative log density is taken less the median of its curve, on validation data and
in the gaps. The medians of these over all runs with a level of an axis are that level's effects,
each curve counting the same, however many runs it has; below zero is better. Half of the runs with
the level are between the quartiles. A second table has
the best run of each curve by validation, as the thesis chooses, beside the thesis's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from gpflow_gvi.experiments.report.runs import read_runs

if __package__:
    from .data import add_quick
    from .thesis import KNOWN
else:
    from data import add_quick
    from thesis import KNOWN

RESULTS = Path(__file__).parent / "results" / "thesis_sweep"
PARTS = {"validation": "validation.nll", "gaps": "test.nll"}


def effects(folder: Path) -> pd.DataFrame:
    """Return a row for each level of each axis, with medians and quartiles of both parts."""
    runs = read_runs(folder)
    done = runs.table["status"] == "done"
    table, levels = runs.table[done], runs.levels[done].drop(columns="data.number")
    scores = {
        part: table[column].astype(float).fillna(float("inf")) for part, column in PARTS.items()
    }
    shifts = {
        part: of - of.groupby(table["data"]).transform("median") for part, of in scores.items()
    }
    weights = 1.0 / table.groupby("data")["data"].transform("size")
    rows = []
    for axis in levels:
        for level, names in levels.groupby(axis).groups.items():
            row = {"axis": axis, "level": level, "runs": len(names)}
            for part, shift in shifts.items():
                low, middle, high = quartiles(shift.loc[names], weights.loc[names])
                row[part] = f"{middle:+.3f} ({low:+.3f}, {high:+.3f})"
            rows.append(row)
    return pd.DataFrame(rows)


def quartiles(values: pd.Series, weights: pd.Series) -> list[float]:
    """Return the quartiles and the median of weighted values."""
    values = values.sort_values()
    shares = weights.loc[values.index].cumsum() / weights.sum()
    return [float(values.iloc[int(np.searchsorted(shares, q))]) for q in (0.25, 0.5, 0.75)]


def best(folder: Path) -> pd.DataFrame:
    """Return a row for each curve, with the run whose validation data have the highest density."""
    runs = read_runs(folder)
    done = runs.table["status"] == "done"
    table, levels = runs.table[done], runs.levels[done]
    rows = []
    for number, known in enumerate(KNOWN):
        of_curve = table[levels["data.number"].astype(str) == str(number)]
        if len(of_curve):
            name = of_curve[PARTS["validation"]].astype(float).idxmin()
            row = {"curve": number, "runs": len(of_curve)}
            for part, column in PARTS.items():
                row[part] = f"{of_curve[column].astype(float)[name]:.3f}"
                row[f"{part}: thesis"] = f"{getattr(known, part):.3f}"
            axes = levels.loc[name].drop("data.number")
            rows.append({**row, "setting": ", ".join(map(str, axes))})
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown."""
    lines = [f"| {' | '.join(table)} |", "| --- | --- |" + " --: |" * (len(table.columns) - 2)]
    lines += [f"| {' | '.join(map(str, row))} |" for row in table.itertuples(index=False)]
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of a sweep")
    add_quick(parser)
    folder = parser.parse_args().results
    print(markdown(effects(folder)))
    print()
    print(markdown(best(folder)))


if __name__ == "__main__":
    main()

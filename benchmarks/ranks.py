"""Ranks of models over data sets, from the table that `regression.py` prints.

    python -m benchmarks.ranks benchmarks/results/regression.md --picture ranks.png

Ranks are those of the mean NLL of each data set, among the models that have been run on it. The
picture compares the models that have been run on most sets, as Demšar (2006) does: Friedman's test
says whether their ranks differ, and two models differ at the level of 5 % if their mean ranks are
farther apart than Nemenyi's critical difference q √(k(k + 1) / 6n) of k models and n sets.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

ROW = re.compile(r"\| ([\w ]+) \| ([\w ,-]+) \| (-?\d+\.\d+)(?: ± (\d+\.\d+|nan))? \| \d")
OURS = "learn"
VARIANTS = ("learn, fast", "learn, network", "learn, CatBoost")


class Compared(NamedTuple):
    """The models that have been run on the same sets."""

    ranks: pd.Series
    num_sets: int
    critical_difference: float
    p_value: float


def read(text: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the NLL [sets, models] of the first table with CRPS, and its standard errors."""
    table = text.split("| data | model | NLL | CRPS", 1)[1].split("\n\n", 1)[0]
    rows = [match.groups() for match in ROW.finditer(table)]
    frame = pd.DataFrame(rows, columns=["data", "model", "nll", "error"])
    frame[["nll", "error"]] = frame[["nll", "error"]].astype(float)
    frame = frame[~frame["model"].isin(VARIANTS)]
    nll, error = (frame.pivot(index="data", columns="model", values=v) for v in ("nll", "error"))
    return nll, error


def compared(nll: pd.DataFrame, models: Sequence[str]) -> Compared:
    """Return mean ranks over the sets on which all of the models have been run."""
    complete = nll[list(models)].dropna()
    k, n = len(models), len(complete)
    q = stats.studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2.0)
    p_value = stats.friedmanchisquare(*complete.to_numpy().T).pvalue
    ranks = complete.rank(axis=1).mean().sort_values()
    return Compared(ranks, n, q * np.sqrt(k * (k + 1) / (6 * n)), p_value)


def summary(nll: pd.DataFrame, error: pd.DataFrame) -> str:
    """Return mean ranks, and how far `learn` is from the best other model of each set."""
    ranks = nll.rank(axis=1)
    lines = ["| model | mean rank | first | sets |", "| --- | --: | --: | --: |"]
    for model in ranks.mean().sort_values().index:
        own = ranks[model].dropna()
        lines.append(f"| {model} | {own.mean():.2f} | {sum(own == 1)} | {len(own)} |")
    lines += ["", f"| data | {OURS} less the best other model | its standard error | which |"]
    lines += ["| --- | --: | --: | --- |"]
    others = nll.drop(columns=OURS)
    best = others.idxmin(axis=1)
    gaps = (nll[OURS] - others.min(axis=1)).round(3)  # those that look equal keep their order
    for data, gap in gaps.sort_values(kind="stable").items():
        both = np.hypot(*error.loc[data, [OURS, best[data]]])
        shown = "" if np.isnan(both) else f"{both:.3f}"  # of one split none is known
        lines.append(f"| {data} | {gap:.3f} | {shown} | {best[data]} |")
    return "\n".join(lines)


def draw(found: Compared, path: Path) -> None:
    """Draw mean ranks on a line, and bars over the models that do not differ."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    k = len(found.ranks)
    half = (k + 1) // 2
    groups = _groups(found.ranks.to_numpy(), found.critical_difference)
    figure, ax = plt.subplots(figsize=(8.0, 1.4 + 0.28 * half + 0.12 * len(groups)))
    ax.set(xlim=(0.6, k + 0.4), ylim=(-half - 0.12 * len(groups) - 1.2, 1.1))
    ax.axis("off")
    ax.plot([1, k], [0, 0], color="black")
    for place in range(1, k + 1):
        ax.plot([place, place], [0, 0.15], color="black")
        ax.text(place, 0.25, str(place), ha="center", va="bottom")
    for number, (low, high) in enumerate(groups):
        y = -0.3 - 0.25 * number
        ax.plot([low - 0.04, high + 0.04], [y, y], color="black", linewidth=4, alpha=0.6)
    start = -0.3 - 0.25 * len(groups)
    for number, (model, rank) in enumerate(found.ranks.items()):
        left = number < half
        y = start - 0.6 * (number if left else k - 1 - number) - 0.3
        end = 0.95 if left else k + 0.05
        colour = "C0" if model == OURS else "black"
        ax.plot([rank, rank, end], [0, y, y], color=colour, linewidth=1)
        label = f"{model} {rank:.2f}"
        ax.text(end, y, label, ha="right" if left else "left", va="center", color=colour)
    ax.set_title(
        f"Mean rank by NLL over {found.num_sets} data sets; critical difference "
        f"{found.critical_difference:.2f} (5 %)",
        fontsize="medium",
    )
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _groups(ranks: np.ndarray, difference: float) -> list[tuple[float, float]]:
    """Return the first and last rank of each largest group within the difference."""
    groups: list[tuple[float, float]] = []
    for low in ranks:
        high = ranks[ranks <= low + difference].max()
        if high > low and (not groups or high > groups[-1][1]):
            groups.append((low, high))
    return groups


def main() -> None:
    """Print ranks and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, help="a page with the table of `regression.py`")
    parser.add_argument("--sets", type=int, default=10, help="on which a drawn model has been run")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    nll, error = read(options.table.read_text())
    print(summary(nll, error))
    found = compared(nll, nll.columns[nll.count() >= options.sets])
    print(f"\nFriedman's test: p = {found.p_value:.2g} over {found.num_sets} sets")
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()

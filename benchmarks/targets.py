"""Held-out densities of `learn` by default for each kind of target, beside those of other models.

    python -m benchmarks.targets --output rows.json
    python -m benchmarks.targets --tables rows.json

Data are simulated (`target_data`), so that the law of the test rows is known: its own figures are
the first row of a table. What the models are is in `target_rivals`. NLL is the average of
-log p(y) over 1000 test rows, RMSE that of the predicted mean to the true one, and pinball the
average loss of both ends of the 90 % interval.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from sklearn.metrics import mean_pinball_loss

if __package__:
    from . import target_rivals
    from .data import add_quick
    from .target_data import KINDS, Kind, Sample, sample
    from .target_rivals import ENDS, Fit, rivals
else:
    import target_rivals
    from data import add_quick
    from target_data import KINDS, Kind, Sample, sample
    from target_rivals import ENDS, Fit, rivals

UNRANKED = ("truth", "learn of clean rows")
"""Models that know what none can know."""


class Row(NamedTuple):
    """One model on one sample; NaN of what it does not predict."""

    kind: str
    seed: int
    model: str
    nll: float
    rmse: float
    coverage: float
    pinball: float
    seconds: float
    """Of processor time."""


def measured(name: str, kind: Kind, seed: int, model: str, part: Sample, fit: Fit) -> Row:
    """Return the figures of a model on a sample."""
    start = time.process_time()
    density, mean, interval = fit(part, kind, seed)
    seconds = time.process_time() - start
    nll = rmse = coverage = pinball = np.nan
    if density is not None:
        nll = -float(np.mean(density))
    if mean is not None:
        rmse = float(np.sqrt(np.mean(np.square(mean - part.mean))))
    if interval is not None:
        lower, upper = interval
        coverage = float(np.mean((lower <= part.Y_test) & (part.Y_test <= upper)))
        pairs = zip(interval, ENDS, strict=True)
        pinball = float(np.mean([mean_pinball_loss(part.Y_test, q, alpha=a) for q, a in pairs]))
    return Row(name, seed, model, nll, rmse, coverage, pinball, seconds)


def values(rows: Sequence[Row], kind: str, model: str, figure: str) -> np.ndarray:
    """Return a figure of a model, seed by seed."""
    found = {row.seed: getattr(row, figure) for row in rows if (row[0], row[2]) == (kind, model)}
    return np.array([found[seed] for seed in sorted(found)])


def average(figures: np.ndarray) -> tuple[float, float]:
    """Return the mean and its standard error."""
    error = figures.std(ddof=1) / np.sqrt(len(figures)) if len(figures) > 1 else np.nan
    return float(figures.mean()), float(error)


def difference(rows: Sequence[Row], kind: str, ours: str, figure: str) -> tuple[str, float, float]:
    """Return the best other model by the mean of a figure, and how much larger ours is."""
    models = {row.model for row in rows if row.kind == kind} - set(UNRANKED)
    others = {
        model: values(rows, kind, model, figure).mean()
        for model in models
        if not model.startswith("learn")
    }
    best = min(others, key=lambda model: np.nan_to_num(others[model], nan=np.inf))
    own, theirs = (values(rows, kind, model, figure) for model in (ours, best))
    return best, *average(own - theirs)


def comparison(rows: Sequence[Row]) -> list[str]:
    """Return a table of `learn` and its best rival: NLL, or under outliers RMSE."""
    lines = [
        "| targets | figure | model | best rival | its figure less, seed by seed | ✓ |",
        "| --- | --- | --- | --- | ---: | --- |",
    ]
    for kind in dict.fromkeys(row.kind for row in rows):
        figure = "rmse" if kind.startswith("outliers") else "nll"
        models = dict.fromkeys(row.model for row in rows if row.kind == kind)
        for ours in models:
            if not ours.startswith("learn") or ours in (*UNRANKED, "learn, Gaussian"):
                continue
            best, mean, error = difference(rows, kind, ours, figure)
            mark = "✓" if mean <= error else ""
            lines.append(
                f"| {kind} | {figure} | {ours} | {best} | {mean:+.4f} ± {error:.4f} | {mark} |"
            )
    return [*lines, ""]


def table(rows: Sequence[Row]) -> list[str]:
    """Return a table of all models; intervals are compared where they are what is asked for."""
    figures = Row._fields[3:-1]
    lines = [
        f"| targets | model | {' | '.join(figures)} |",
        "| --- | --- |" + " ---: |" * len(figures),
    ]
    for kind, model in dict.fromkeys((row.kind, row.model) for row in rows):
        cells = []
        for figure in figures:
            mean, error = average(values(rows, kind, model, figure))
            left_out = figure in ("coverage", "pinball") and not kind.startswith("varying")
            cells.append("" if np.isnan(mean) or left_out else f"{mean:.4f} ± {error:.4f}")
        lines.append(f"| {kind} | {model} | {' | '.join(cells)} |")
    return lines


def run(names: Sequence[str], seeds: Sequence[int], output: Path | None, only: str = "") -> None:
    """Run the models of each kind, and write rows.

    :param only: what names of models start with.
    """
    rows = []
    for name in names:
        kind = KINDS[name]
        for seed in seeds:
            part = sample(kind, seed)
            for model, fit in rivals(name).items():
                if not model.startswith(only):
                    continue
                rows.append(measured(name, kind, seed, model, part, fit))
                line = (
                    "{:<27}{:>4}  {:<26} nll {:.4f}  rmse {:.4f}  coverage {:.3f}  pinball {:.4f}"
                )
                print(line.format(*rows[-1]), flush=True)
                if output:
                    output.write_text(json.dumps([row._asdict() for row in rows], indent=1))


def main() -> None:
    """Run the models and write the rows, or read rows and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", default="", help="the start of the names of models to run")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--tables", type=Path, nargs="+", help="files of rows to print tables of")
    add_quick(parser)
    options = parser.parse_args()
    if options.tables:
        rows = [Row(**row) for path in options.tables for row in json.loads(path.read_text())]
        print("\n".join([*comparison(rows), *table(rows)]))
        return
    warnings.filterwarnings("ignore")
    if options.quick:
        options.kinds, options.seeds = options.kinds[:1], options.seeds[:2]
        target_rivals.STEPS = 20
        (name,) = options.kinds
        KINDS[name] = dataclasses.replace(KINDS[name], num_rows=40)
    run(options.kinds, options.seeds, options.output, options.only)


if __name__ == "__main__":
    main()

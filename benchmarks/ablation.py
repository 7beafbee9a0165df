"""What each rule of the recipe of `learn` is worth: how much worse it predicts without it.

    GPFLOW_GVI_DATA=... python -m benchmarks.ablation --output ablation.json
    GPFLOW_GVI_DATA=... python -m benchmarks.ablation yacht servo --splits 0 1 --rules trees pool

For each table, split and rule `learn` runs with the recipe and without the rule. What is compared
is the log density of the test part, in nats a row: the average over all runs and the largest loss
of a single one. Runs in the output file are not repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from gpflow_gvi.learning import Settings
from gpflow_gvi.learning.procedure import Procedure
from gpflow_gvi.learning.recipe import Recipe
from gpflow_gvi.learning.rows.split import Split
from gpflow_gvi.learning.settings import MAX_INDUCING, preset

from .data import add_argument, add_quick, load_split

NEVER = 10**9

WITHOUT: dict[str, dict[str, Any]] = {
    "sums of functions": {"sums": False},
    "logarithms of inputs": {"log_inputs": False},
    "start by relevance": {"min_rows_of_relevance": NEVER},
    "groups by a column": {"max_gap_of_groups": 0.0},
    "shared lengthscale": {"max_rows_of_shared": 0, "min_rows_of_lasso": NEVER},
    "varying noise": {"min_rows_of_varying_noise": NEVER},
    "prior of the noise": {"min_rows_of_seasons": 0, "min_rows_of_free_noise": (0, 0)},
    "trees": {"min_rows_of_trees": NEVER},
    "network": {"min_rows_of_networks": NEVER},
    "lasso": {"min_rows_of_lasso": NEVER},
    "errors of predictors": {"max_error_ratio": 10.0},
    "screening of predictors": {"min_gain_of_predictors": -np.inf},
    "logarithms": {"log_ratio": np.inf},
    "second kernel": {"gap_of_starts": 0.0},
    "second fit": {"gap": 0.0},
    "several candidates": {"max_candidates": 1},
    "optimism": {"min_optimism": 0.0},
    "partitions": {"num_partitions": 1},
    "predictors without two folds": {"max_rows_of_nested": 0},
    "pool": {"max_parts": 1, "min_gain": NEVER},
    "all rows as points": {"max_rows_of_points": 0},
}
"""The rules, and the values of the recipe that switch them off."""

TABLES = (
    *("yacht", "energy", "concrete", "airfoil", "autompg", "autos", "concreteslump"),
    *("forest", "pendulum", "servo", "stock"),
    *("numbers_Arbuthnot", "numbers_Clothing", "numbers_Gasoline", "numbers_PErisk"),
    *("numbers_Snow-streets", "numbers_chorSub", "numbers_incomeInequality"),
    *("numbers_planets", "numbers_tongue"),
)
"""The last nine are each fourth of those of `small/`."""


def nll(part: Any, changes: Mapping[str, Any]) -> float:
    """Return the negative log density of the test part by what is learned with a recipe."""
    settings = Settings(
        dataclasses.replace(
            preset("default"),
            recipe=dataclasses.replace(Recipe(), **changes),
            max_inducing=MAX_INDUCING,
        ),
        pool=True,
    )
    learned = Procedure(Split.of((part.X, part.Y), settings), settings).run()
    return -float(np.mean(learned.predict_log_density((part.X_test, part.Y_test))))


def main() -> None:
    """Run what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_argument(parser)
    add_quick(parser)
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rules", nargs="+", default=list(WITHOUT), choices=list(WITHOUT))
    parser.add_argument("--output", type=Path, help="a file of JSON that keeps the runs")
    options = parser.parse_args()
    if options.quick:
        options.tables, options.splits = options.tables[:1], options.splits[:1]
        options.rules = options.rules[:2]
    kept = options.output is not None and options.output.exists()
    runs: dict[str, list[float]] = json.loads(options.output.read_text()) if kept else {}
    warnings.simplefilter("ignore")
    for table in options.tables:
        for split in options.splits:
            part = load_split(options.data_dir, table, split)
            for rule in ("none", *options.rules):
                key = f"{table} {split} {rule}"
                if key not in runs:
                    start = time.process_time()
                    value = nll(part, WITHOUT.get(rule, {}))
                    runs[key] = [value, time.process_time() - start]
                    if options.output is not None:
                        options.output.write_text(json.dumps(runs, indent=1))
    print(tabulated(runs))


def tabulated(runs: Mapping[str, list[float]]) -> str:
    """Return what leaving out each rule costs, as Markdown, the most valuable first."""
    rows = []
    for rule in WITHOUT:
        pairs = {
            key: (np.array(value) - runs[key.removesuffix(rule) + "none"])
            for key, value in runs.items()
            if key.endswith(f" {rule}")
        }
        if pairs:
            costs = {key.removesuffix(f" {rule}"): pair[0] for key, pair in pairs.items()}
            worst = max(costs, key=lambda key: costs[key])
            seconds = float(np.mean([pair[1] for pair in pairs.values()]))
            mean = float(np.mean(list(costs.values())))
            rows.append((mean, costs[worst], worst, len(costs), seconds, rule))
    lines = [
        "| rule | runs | nats lost without it | most | where | seconds more without it |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for mean, most, where, count, seconds, rule in sorted(rows, reverse=True):
        lines.append(f"| {rule} | {count} | {mean:.3f} | {most:.3f} | {where} | {seconds:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""What the weight λ of the divergence does: on three curves, and on three UCI tables.

    GPFLOW_GVI_DATA=... python -m benchmarks.weights

P is a prior with a squared exponential fitted to the rows, and Q has a network for its mean and the
diagonal covariance; both are trained by L-BFGS on all rows. PGVI has Rényi's divergence of the
marginals; GWI has W₂² by its low-rank estimator. A divergence is an average over rows, so that
λ = 1 is PGVI as in the thesis and λ = 1/N GWI as in its paper. Tables have their split 5, with a
tenth of its rows held out for tempering; without a folder of data they are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from gpflow_gvi.experiments.config import Experiment
from gpflow_gvi.experiments.run import run

if __package__:
    from .data import add_argument, add_quick
else:
    from data import add_argument, add_quick

CURVES, TABLES = (1, 4, 9), ("yacht", "energy", "concrete")
WEIGHTS: tuple[float | str, ...] = (1e-4, 1e-3, "1/N", 1e-2, 1e-1, 1.0)
DIVERGENCES = {
    "PGVI": {"kind": "projected_renyi"},
    "GWI": {"kind": "gaussian_wasserstein", "estimator": "low_rank"},
}
SCORES = {"nll": "Negative log density", "rmse": "Root of the mean squared error"}


def experiment(data: Any, divergence: dict[str, Any], iterations: int) -> Experiment:
    """Return the experiment of a model on a data set."""
    table = data["kind"] in TABLES
    layer = {"kind": "dense", "units": 50, "activation": "tanh"}
    kernel = {"kind": "squared_exponential"} | ({} if table else {"lengthscale": 0.2})
    values = {
        "data": data,
        "regulariser": {"kernel": kernel, "mode": "prior", "inducing": 100 if table else 24},
        "mean": {"kind": "network", "layers": [layer] * 2, "readout": "random"},
        "covariance": "diagonal",
        "loss": "predictive_log_loss",
        "divergence": divergence,
        "training": {"kind": "lbfgs", "iterations": iterations},
        "refit": False,
    }
    if table:
        values["split"] = {"kind": "given", "index": 5, "validation": 0.1}
    return Experiment.model_validate(values)


def cell(value: float) -> str:
    """Return a figure to three digits after the point, of large ones to three digits."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.3g}"


def table(rows: list[dict[str, Any]], score: str) -> str:
    """Return one score of all runs as Markdown: a row for each data set and model."""
    weights = [weight if isinstance(weight, str) else f"{weight:g}" for weight in WEIGHTS]
    head = ["data", "model", *(f"λ = {weight}" for weight in weights)]
    lines = [f"| {' | '.join(head)} |", f"| --- | --- |{' --: |' * len(WEIGHTS)}"]
    found = {(row["data"], row["model"]): {} for row in rows}
    for row in rows:
        found[row["data"], row["model"]][row["weight"]] = cell(row[score])
    for (data, model), cells in found.items():
        values = [cells.get(weight, "") for weight in WEIGHTS]
        lines.append(f"| {data} | {model} | {' | '.join(values)} |")
    return "\n".join(lines)


def main() -> None:
    """Run all weights, and print a table for each score."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=200, help="of L-BFGS, at most")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    add_argument(parser)
    add_quick(parser)
    options = parser.parse_args()
    data_sets = [{"kind": "thesis_curve", "number": number} for number in CURVES]
    if options.data_dir:
        data_sets += [{"kind": kind} for kind in TABLES]
    weights, iterations = WEIGHTS, options.iterations
    if options.quick:
        data_sets, weights, iterations = data_sets[:1], WEIGHTS[-1:], 2
    rows: list[dict[str, Any]] = []
    folder = options.data_dir and Path(options.data_dir)
    with tempfile.TemporaryDirectory() as runs:
        for data in data_sets:
            for model, divergence in DIVERGENCES.items():
                for weight in weights:
                    asked = experiment(data, {**divergence, "weight": weight}, iterations)
                    path = run(asked, runs, data_dir=folder, pictures=False, share=True)
                    scores = json.loads((path / "metrics.json").read_text())["test"]
                    row = {"data": asked.data.label.removeprefix("thesis_"), "model": model}
                    values = {
                        name: np.inf if scores[name] is None else scores[name] for name in SCORES
                    }
                    rows.append({**row, "weight": weight, **values})
                    print(*rows[-1].values(), flush=True)
                    if options.output:
                        options.output.write_text(json.dumps(rows, indent=1))
    for score, title in SCORES.items():
        print(f"\n{title}\n\n{table(rows, score)}")


if __name__ == "__main__":
    main()

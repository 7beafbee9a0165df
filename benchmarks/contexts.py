"""The effect of a context in the gaps of the ten regression curves.

    python -m benchmarks.contexts --output contexts.json

P is the sparse posterior of `learn`. Q has the covariance of P to start with, and one of two means:
a network of its own, or the mean of P and a network that starts at zero. Both are trained for 3,000
steps, with no early stopping, by `PGVI`, whose divergence is evaluated at the batch alone or at the
batch of 100 and 50 or 200 points of the uniform law on [-2, 2]. Each is tempered with the
validation data. The weight λ and the number of points are chosen for each curve by validation, and
never by the gaps.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import keras
import numpy as np

import gpflow_gvi as gvi
from gpflow_gvi import metrics
from gpflow_gvi.divergences import ProjectedRenyi, contexts
from gpflow_gvi.learning import recipe

if __package__:
    from .data import Curve, add_quick, load_curve
else:
    from data import Curve, add_quick, load_curve

MEANS = ("network", "P + network")
WEIGHTS = (0.01, 0.1)
BATCH = 100
EPOCHS = 500  # of six steps
POINTS = (0, 50, 200)
LOWER, UPPER = -2.0, 2.0
SETTINGS = list(itertools.product(MEANS, WEIGHTS, POINTS))
QUICK = list(itertools.product(MEANS, WEIGHTS[:1], POINTS[:2]))


def network(seed: int) -> Any:
    """Two hidden layers of 50; the initial weights of the first are as large as the curves need.

    With Keras's initial weights some curves are not fitted within the given steps.
    """
    init = keras.initializers
    wide = [init.RandomNormal(stddev=3.0, seed=seed + i) for i in range(2)]
    usual = [init.GlorotUniform(seed=seed + i) for i in range(2, 4)]
    dense = functools.partial(keras.layers.Dense, dtype="float64")
    layers = [
        dense(50, "tanh", kernel_initializer=wide[0], bias_initializer=wide[1]),
        dense(50, "tanh", kernel_initializer=usual[0]),
        dense(1, kernel_initializer=usual[1]),
    ]
    return keras.Sequential([keras.Input((1,), dtype="float64"), *layers])


def mean(kind: str, P: gvi.GaussianProcess, seed: int) -> gpflow.functions.MeanFunction:
    """Return a mean for Q."""
    if kind == "network":
        return gvi.mean_functions.Network(network(seed))
    correction = gvi.mean_functions.Network(recipe.network(1, 1, seed=seed))
    return gpflow.utilities.deepcopy(P.mean_function) + correction


def context(num_points: int, learned: Any, seed: int) -> contexts.Context | None:
    """Return the batch and points on the box, in standard units."""
    if not num_points:
        return None
    lower, upper = (learned.inputs.standard(np.array([[end]]))[0] for end in (LOWER, UPPER))
    box = contexts.UniformBox(lower, upper, num_points, seed=seed)
    return contexts.TrainingInputs() + box


def scores(model: Any, learned: Any, curve: Curve) -> dict[str, float]:
    """Temper, and return the negative log densities on the scale of y."""

    def standard(part: str) -> tuple[Any, Any]:
        X, Y = (getattr(curve, f"{axis}_{part}") for axis in "XY")
        return learned.inputs.standard(X), learned.outputs.standard(Y)

    tempered = gvi.temper(model, standard("validation"))
    shift = float(np.sum(np.log(learned.outputs.scale)))
    return {
        part: metrics.nll(Y, *tempered.predict_y(X)) + shift
        for part in ("validation", "gaps")
        for X, Y in [standard(part)]
    }


def run(curve: Curve, seed: int, *, quick: bool = False) -> list[dict[str, Any]]:
    """Return the scores of all settings on a curve."""
    epochs = 1 if quick else EPOCHS
    learned = gvi.learn(
        (curve.X, curve.Y),
        validation_data=(curve.X_validation, curve.Y_validation),
        num_inducing=100,
        epochs=1,
        seed=seed,
    )
    P = learned.model.regulariser
    data = learned.inputs.standard(curve.X), learned.outputs.standard(curve.Y)

    def model(Q: gvi.GaussianProcess, **options: Any) -> gvi.models.PGVI:
        likelihood = gpflow.utilities.deepcopy(learned.regulariser.likelihood)
        return gvi.models.PGVI(P, Q, likelihood, num_data=len(data[0]), **options)

    rows: list[dict[str, Any]] = [{"mean": "P", **scores(model(P), learned, curve)}]
    for kind, weight, num_points in QUICK if quick else SETTINGS:
        Q = gvi.GaussianProcess(mean(kind, P, seed), gpflow.utilities.deepcopy(P.kernel))
        divergence = ProjectedRenyi(context=context(num_points, learned, seed))
        fitted = model(Q, divergence=divergence, divergence_weight=weight)
        rate = keras.optimizers.schedules.CosineDecay(1e-2, epochs * -(-len(data[0]) // BATCH))
        fitted.compile(keras.optimizers.Adam(rate))
        fitted.fit(data, epochs=epochs, batch_size=BATCH, verbose=0, seed=seed)
        setting = {"mean": kind, "weight": weight, "points": num_points}
        rows.append({**setting, **scores(fitted, learned, curve)})
    return rows


def best(rows: list[dict[str, Any]], mean: str, with_context: bool) -> dict[str, Any]:
    """Return the setting that predicts the validation data best."""
    fits = (row for row in rows if row["mean"] == mean and bool(row["points"]) == with_context)
    return min(fits, key=lambda row: row["validation"])


def table(results: dict[int, list[dict[str, Any]]]) -> str:
    """Return for each curve the figures of the settings that were chosen."""
    columns = [(kind, flag) for kind in MEANS for flag in (False, True)]
    names = [f"{kind}{', context' if flag else ''}" for kind, flag in columns]
    lines = ["| curve | " + " | ".join(["P", *names]) + " |", "| --- " * (len(names) + 2) + "|"]
    totals = []
    for number, rows in results.items():
        chosen = [rows[0], *(best(rows, *column) for column in columns)]
        totals.append([[row["validation"], row["gaps"]] for row in chosen])
        lines.append(f"| {number} | " + " | ".join(map(_cell, chosen)) + " |")
    means = (f"{v:.3f} / {g:.3f}" for v, g in np.mean(totals, axis=0))
    return "\n".join([*lines, "| mean | " + " | ".join(means) + " |"])


def _cell(row: dict[str, Any]) -> str:
    setting = f" ({row['weight']:g}; {row['points']})" if "weight" in row else ""
    return f"{row['validation']:.3f} / {row['gaps']:.3f}{setting}"


def settings(results: dict[int, list[dict[str, Any]]]) -> str:
    """Return for each setting the mean scores over the curves."""
    lines = ["| mean of Q | λ | points | validation | gaps |"]
    lines.append("| --- " * 5 + "|")
    for of_curves in list(zip(*results.values(), strict=True))[1:]:
        kind, weight, points = (of_curves[0][key] for key in ("mean", "weight", "points"))
        v, g = (np.mean([row[key] for row in of_curves]) for key in ("validation", "gaps"))
        lines.append(f"| {kind} | {weight:g} | {points} | {v:.3f} | {g:.3f} |")
    return "\n".join(lines)


def main() -> None:
    """Fit the curves, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curves", nargs="*", type=int, default=list(range(10)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="a JSON file for all figures, added to")
    add_quick(parser)
    options = parser.parse_args()
    results: dict[int, list[dict[str, Any]]] = {}
    if options.output and options.output.exists():
        known = json.loads(options.output.read_text())
        results = {int(number): rows for number, rows in known.items()}
    for number in options.curves[: 1 if options.quick else None]:
        if number not in results:
            curve = load_curve(number)
            results[number] = run(curve, options.seed, quick=options.quick)
        if options.output:
            options.output.write_text(json.dumps(results, indent=1))
    print(table(results), settings(results), sep="\n\n")


if __name__ == "__main__":
    main()

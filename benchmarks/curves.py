"""`learn` on the ten regression curves: by default, beside GPflow's exact GPR, or with a network.

    python -m benchmarks.curves --picture curves.png
    python -m benchmarks.curves --epochs 20

Each curve has noise of standard deviation 0.5, 600 training points, 150 validation points, and five
gaps. The validation set is used for early stopping and tempering; the gaps are used for the figures
alone. GPR is fitted to the training data, with a squared exponential, from three starts. With
`--epochs` a network in the mean of Q is trained, by PGVI and by GWI; by default nothing is.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np

import gpflow_gvi as gvi
from gpflow_gvi import metrics

if __package__:
    from .data import Curve, add_quick, load_curve
else:
    from data import Curve, add_quick, load_curve

PARTS = ("validation", "gaps")


def learned(curve: Curve, **options: Any) -> Any:
    """`learn` with the validation data of a curve."""
    validation_data = (curve.X_validation, curve.Y_validation)
    return gvi.learn((curve.X, curve.Y), validation_data=validation_data, **options)


def gpr(curve: Curve) -> Any:
    """GPflow's exact Gaussian process, the best of three starts by marginal likelihood."""
    models = []
    for lengthscale in (0.1, 0.3, 1.0):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
        model = gpflow.models.GPR((curve.X, curve.Y), kernel)
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        models.append(model)
    return min(models, key=lambda model: float(model.training_loss()))


def models(epochs: int | None, seed: int) -> dict[str, Callable[[Curve], Any]]:
    """Return how each model is fitted to a curve.

    :param epochs: of the training of a network in the mean of Q; without it nothing is trained.
    """
    if epochs is None:
        return {"learn": lambda curve: learned(curve, seed=seed), "GPR": gpr}
    kinds = {"PGVI": gvi.models.PGVI, "GWI": gvi.models.GWI}
    return {
        name: lambda curve, kind=kind: learned(curve, model=kind, epochs=epochs, seed=seed)
        for name, kind in kinds.items()
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the negative log densities of each curve, and their means, as Markdown."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    head = ["curve", *(f"{name} {part}" for part in PARTS for name in names)]
    lines = [f"| {' | '.join(head)} |", f"|{' --: |' * len(head)}"]
    figures = {
        number: [row[part] for part in PARTS for row in rows if row["curve"] == number]
        for number in dict.fromkeys(row["curve"] for row in rows)
    }
    for name, values in {**figures, "mean": np.mean(list(figures.values()), axis=0)}.items():
        lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in values)} |")
    return "\n".join(lines)


def main() -> None:
    """Fit the curves, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curves", nargs="*", type=int, default=list(range(10)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="train a network in the mean of Q: 20 suffice")
    parser.add_argument("--picture", type=Path, help="where to draw the first model's fits")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    add_quick(parser)
    options = parser.parse_args()
    makers = models(options.epochs and (1 if options.quick else options.epochs), options.seed)
    rows: list[dict[str, Any]] = []
    fits: dict[int, tuple[Curve, Any]] = {}
    for number in options.curves[: 1 if options.quick else None]:
        curve = load_curve(number)
        for name, make in makers.items():
            model = make(curve)
            row: dict[str, Any] = {"curve": number, "model": name}
            for part in PARTS:
                X, Y = getattr(curve, f"X_{part}"), getattr(curve, f"Y_{part}")
                row[part] = metrics.nll(Y, *model.predict_y(X))
            rows.append(row)
            fits.setdefault(number, (curve, model))
            print("{curve:>2}  {model:<5} {validation:.3f}  {gaps:.3f}".format(**row), flush=True)
            if options.output:
                options.output.write_text(json.dumps(rows, indent=1))
    print(f"\n{table(rows)}")
    if options.picture:
        draw(fits, options.picture)


def draw(fits: dict[int, tuple[Curve, Any]], path: Path) -> None:
    """Draw data, gaps, and prediction with the 95 % intervals of f and of y."""
    from matplotlib.figure import Figure

    from gpflow_gvi.plots import CurveDisplay
    from gpflow_gvi.plots.display import VERMILLION

    figure = Figure(figsize=(16, 6), layout="constrained")
    panels = figure.subplots(2, (len(fits) + 1) // 2, squeeze=False).ravel()
    for panel, (number, (curve, model)) in zip(panels, fits.items(), strict=False):
        CurveDisplay.from_estimator(model, [[-2.2], [2.2]], margin=0.0, ax=panel)
        panel.plot(curve.X, curve.Y, "k.", ms=1.2, label="data")
        panel.plot(curve.X_gaps, curve.Y_gaps, ".", color=VERMILLION, ms=1.2, label="in the gaps")
        panel.get_legend().remove()
        panel.set_title(f"curve {number}")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=6, markerscale=1.8
    )
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()

"""`learn` with its default recipe on the ten regression curves, against GPflow's exact GPR.

    GPFLOW_GVI_DATA=... python benchmarks/curves.py --picture curves.png

Each curve has noise of standard deviation 0.5, 600 training points, 150 of which are the validation
set, and five gaps. The validation set is used for early stopping and tempering; the gaps are used
for the figures alone. GPR is fitted to the training data, with a squared exponential, from three
starts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow

import gpflow_gvi as gvi
from gpflow_gvi import metrics

if __package__:
    from .data import Curve, add_argument, load_curve
else:
    from data import Curve, add_argument, load_curve


def learned(kind: type[gvi.models.GVI], curve: Curve, seed: int) -> Any:
    """The default recipe."""
    validation_data = (curve.X_validation, curve.Y_validation)
    return gvi.learn((curve.X, curve.Y), validation_data=validation_data, model=kind, seed=seed)


def gpr(curve: Curve) -> Any:
    """GPflow's exact Gaussian process, the best of three starts by marginal likelihood."""
    models = []
    for lengthscale in (0.1, 0.3, 1.0):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
        model = gpflow.models.GPR((curve.X, curve.Y), kernel)
        gpflow.optimizers.Scipy().minimize(model.training_loss, model.trainable_variables)
        models.append(model)
    return min(models, key=lambda model: float(model.training_loss()))


def main() -> None:
    """Fit the curves, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curves", nargs="*", type=int, default=list(range(10)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-gpr", action="store_true")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    add_argument(parser)
    options = parser.parse_args()
    makers = {
        "PGVI": lambda curve: learned(gvi.models.PGVI, curve, options.seed),
        "GWI": lambda curve: learned(gvi.models.GWI, curve, options.seed),
    }
    if not options.without_gpr:
        makers["GPR"] = gpr
    rows: list[dict[str, Any]] = []
    fits: dict[int, tuple[Curve, Any]] = {}
    for number in options.curves:
        curve = load_curve(Path(options.data_dir), number)
        for name, make in makers.items():
            start = time.perf_counter()
            model = make(curve)
            row = {"curve": number, "model": name, "seconds": time.perf_counter() - start}
            for part in ("validation", "gaps"):
                X, Y = getattr(curve, f"X_{part}"), getattr(curve, f"Y_{part}")
                row[part] = metrics.nll(Y, *model.predict_y(X))
            rows.append(row)
            line = "{curve:>2}  {model:<5} {validation:.3f}  gaps {gaps:.3f}  {seconds:.1f} s"
            print(line.format(**row), flush=True)
            if name == "PGVI":
                fits[number] = curve, model
    if options.output:
        options.output.write_text(json.dumps(rows, indent=1))
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

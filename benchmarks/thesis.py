"""The ten curves of the thesis: the best settings by validation, beside its own and exact GPR.

    python -m benchmarks.thesis --folder runs/thesis

P is a posterior given all rows, with a kernel of the recipe of `learn` and 100 inducing points. The
mean of Q is the thesis's network, fitted to P's mean first; Q is trained by L-BFGS, held to P
(Bhattacharyya) at 400 points that cover the inputs and the gaps. λ and the initial network are
chosen by the negative log density of the validation data, after tempering with them, in two ways:
the least, and the largest λ of those whose likelihood ratio to the least is not significant, as
these data lie where the training data do and cannot tell what a small λ does in the gaps. A run
that is in the folder already is not repeated. The thesis's figures are
those of its own code with the setting that it names as best for the curve, by validation among
1,260; GPR is GPflow's, with a squared exponential, the best of three starts (benchmarks.curves).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from gpflow_gvi.experiments.config import Experiment
from gpflow_gvi.experiments.run import run

if __package__:
    from .data import add_quick
else:
    from data import add_quick


class Known(NamedTuple):
    """What is known of a curve, on the same arrays: negative log densities."""

    validation: float
    gaps: float
    gpr_validation: float
    gpr_gaps: float


KNOWN = (
    Known(0.728, 0.760, 0.721, 0.724),
    Known(0.784, 2.880, 0.774, 0.791),
    Known(0.784, 1.107, 0.818, 0.775),
    Known(0.736, 41.09, 0.762, 1.206),
    Known(0.779, 1.637, 0.798, 0.809),
    Known(0.825, 0.912, 0.820, 0.847),
    Known(1.035, 2.075, 0.714, 0.793),
    Known(0.719, 1.114, 0.720, 0.774),
    Known(0.794, 0.990, 0.758, 0.771),
    Known(0.771, 0.884, 0.821, 0.774),
)
"""Of the thesis's fits, and of exact GPR, by the numbers of the curves."""

LAYER = {"kind": "dense", "units": 50, "activation": "tanh"}
CONTEXT = {"kind": "halton_box", "num_points": 400, "margin": 0.0}
WEIGHTS = (1.0, 0.3, 0.1, 0.01)
SEEDS = (0, 1)

NOT_SIGNIFICANT = 1.92
"""Half the 95 % point of χ² with one degree of freedom: a log likelihood ratio below it says
nothing."""


class Setting(NamedTuple):
    """What is chosen by validation."""

    weight: float
    seed: int

    def experiment(self, number: int, iterations: int) -> Experiment:
        """Return the experiment on a curve."""
        values = {
            "data": {"kind": "thesis_curve", "number": number},
            "regulariser": {
                "kernel": "recipe",
                "mode": "posterior",
                "inducing": 100,
            },
            "mean": {
                "kind": "network",
                "layers": [LAYER] * 2,
                "readout": "random",
                "fitted_to": "posterior",
            },
            "covariance": "kernelised",
            "loss": "predictive_log_loss",
            "divergence": {
                "kind": "projected_bhattacharyya",
                "weight": self.weight,
                "context": CONTEXT,
            },
            "training": {"kind": "lbfgs", "iterations": iterations},
            "refit": False,
            "seed": self.seed,
        }
        return Experiment.model_validate(values)


SETTINGS = list(itertools.starmap(Setting, itertools.product(WEIGHTS, SEEDS)))


class Fit(NamedTuple):
    """What a run came to."""

    validation: float
    gaps: float
    seconds: float
    rows: int
    """Of the validation data."""
    setting: Setting


Chosen = tuple[Fit, Fit]
"""The fit of the least score, and that of the largest λ among those that are as good."""


def best(number: int, settings: Sequence[Setting], iterations: int, folder: Path) -> Chosen:
    """Return the chosen fits of a curve."""
    fits = []
    for setting in settings:
        path = run(setting.experiment(number, iterations), folder, pictures=False, share=True)
        metrics = json.loads((path / "metrics.json").read_text())
        facts = json.loads((path / "run.json").read_text())
        scores = (metrics[part]["nll"] for part in ("validation", "test"))
        seconds = sum(facts["seconds"].values())
        fits.append(Fit(*scores, seconds, facts["rows"]["validation"], setting))
    least = min(fits, key=lambda fit: fit.validation)
    most = least.validation + NOT_SIGNIFICANT / least.rows
    as_good = [fit for fit in fits if fit.validation <= most]
    return least, min(as_good, key=lambda fit: (-fit.setting.weight, fit.validation))


WAYS = ("least", "largest λ")


def table(chosen: dict[int, Chosen]) -> str:
    """Return the chosen fits of curves as Markdown."""
    names = ["thesis", "GPR", *WAYS]
    head = ["curve", *(f"{part}: {name}" for part in ("validation", "gaps") for name in names)]
    head += [f"λ, start: {way}" for way in WAYS]
    lines = [f"| {' | '.join(head)} |", f"|{' --: |' * len(head)}"]
    for number, fits in chosen.items():
        known = KNOWN[number]
        validation = known.validation, known.gpr_validation, *(fit.validation for fit in fits)
        gaps = known.gaps, known.gpr_gaps, *(fit.gaps for fit in fits)
        cells = [f"{value:.3f}" for value in (*validation, *gaps)]
        cells += [f"{fit.setting.weight:g}, {fit.setting.seed}" for fit in fits]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def counts(chosen: dict[int, Chosen]) -> str:
    """Return in words on how many curves the fits are as good as others."""
    found = []
    for position, way in enumerate(WAYS):
        fits = {number: fits[position] for number, fits in chosen.items()}
        of_thesis = sum(round(f.validation, 3) <= KNOWN[n].validation for n, f in fits.items())
        of_gpr = sum(round(f.gaps, 3) <= KNOWN[n].gpr_gaps for n, f in fits.items())
        found.append(
            f"{way}: at or below the thesis by validation on {of_thesis} of {len(fits)} curves, at "
            f"or below GPR in the gaps on {of_gpr}"
        )
    return "\n".join(found)


def main() -> None:
    """Run the settings on the curves, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curves", nargs="*", type=int, default=list(range(10)))
    parser.add_argument("--folder", type=Path, default=Path("runs/thesis"))
    parser.add_argument("--iterations", type=int, default=500, help="of L-BFGS, at most")
    add_quick(parser)
    options = parser.parse_args()
    curves, settings, iterations = options.curves, SETTINGS, options.iterations
    if options.quick:
        curves, settings, iterations = curves[:1], SETTINGS[:1], 2
    chosen = {}
    for number in curves:
        fits = chosen[number] = best(number, settings, iterations, options.folder)
        print(number, *(f"{f.validation:.3f} {f.gaps:.3f} {f.seconds:.1f} s" for f in fits))
    print(f"\n{table(chosen)}\n\n{counts(chosen)}")


if __name__ == "__main__":
    main()

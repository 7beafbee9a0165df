"""The estimators of the function-space Wasserstein distance: their time and their error.

    python -m benchmarks.wasserstein --output wasserstein.json
    python -m benchmarks.wasserstein errors                      # one part alone

Time of the distance with its gradient, where it costs O(B³); of a training step with it, beside a
step of PGVI, where its cost is linear in B; and the error against the exact distance. On one core,
in float64. X is standard normal in 8 dimensions, kernels are squared exponentials of lengthscale
√8, unless stated otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.divergences import GaussianWasserstein
from gpflow_gvi.divergences.wasserstein import (
    CovarianceDistance,
    Exact,
    Landmark,
    LowRank,
    NewtonSchulz,
)

from . import steps, timing
from .peers import inputs
from .timing import Row

M = 100
ESTIMATORS = {
    "low_rank": LowRank(),
    "low_rank, 100 pivots": LowRank(100),
    "low_rank, 200 pivots": LowRank(200),
    "landmark, 100": Landmark(100),
}
COVARIANCES = ("CholeskySVGP", "DiagonalSVGP", "KernelisedSVGP", "SparsePosterior")
SMOOTH = [(1, 0.5), (2, 1.0), (4, 2.0), (8, 5.0), (8, 8**0.5)]


def distance(kind: CovarianceDistance, B: int) -> Callable[[], Any]:
    """Return a compiled evaluation of a distance and its gradient in Q's parameters."""
    X, _, Z = inputs(B, M)
    k = steps.kernel()
    p = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    q = gvi.GaussianProcess(gpflow.functions.Zero(), gvi.covariances.CholeskySVGP(k, Z))
    divergence, batch = GaussianWasserstein(kind), tf.constant(X)

    @tf.function(autograph=False)
    def run(X: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            value = divergence(q, p, X)
        return value, tape.gradient(value, q.trainable_variables)

    return lambda: run(batch)[0].numpy()


class Sizes(NamedTuple):
    """What is measured: numbers of rows, covariances, and D with lengthscales of kernels."""

    dense: Sequence[int] = (250, 500, 1000)
    steps: Sequence[int] = (500, 1000, 5000)
    errors: tuple[int, int] = (500, 2000)
    covariances: Sequence[str] = COVARIANCES
    kernels: Sequence[tuple[int, float]] = tuple(SMOOTH)


QUICK = Sizes((30,), (30,), (120, 130), COVARIANCES[:1], SMOOTH[:1])


def dense(rounds: int, sizes: Sizes) -> list[Row]:
    """Return milliseconds of the estimators that cost O(B³)."""
    rows = []
    for B in sizes.dense:
        kinds = {"exact": Exact(), "newton_schulz": NewtonSchulz()}
        cases = {name: timing.timed(distance(kind, B)) for name, kind in kinds.items()}
        K = steps.kernel()(inputs(B, M)[0]).numpy()
        cases["eigh of NumPy"] = timing.timed(lambda K=K: np.linalg.eigh(K))
        for name, value in timing.medians(cases, rounds).items():
            rows.append({"B": B, "estimator": name, "ms": 1e3 * value})
    return rows


def linear(rounds: int, sizes: Sizes) -> list[Row]:
    """Return milliseconds of steps, and ratios to a step of PGVI."""
    rows = []
    for covariance in sizes.covariances:
        for B in sizes.steps:
            X, Y, _ = inputs(B, M)
            cases = {"PGVI": timing.timed(steps.step(steps.pgvi(covariance, B, M), X, Y))}
            for name, kind in ESTIMATORS.items():
                model = steps.pgvi(covariance, B, M)
                model.divergence = GaussianWasserstein(kind)
                cases[name] = timing.timed(steps.step(model, X, Y))
            seconds = timing.medians(cases, rounds)
            rows += [
                {
                    "covariance": covariance,
                    "B": B,
                    "divergence": name,
                    "ms": 1e3 * value,
                    "ratio": value / seconds["PGVI"],
                }
                for name, value in seconds.items()
            ]
    return rows


def posterior(name: str, k: gpflow.kernels.Kernel, X: np.ndarray, Z: np.ndarray) -> Any:
    """Return a covariance fitted to data, or with a kernel of its own."""
    if name in ("CholeskySVGP", "DiagonalSVGP"):
        return getattr(gvi.covariances, name).from_data(k, Z, X, 0.1)
    own = gpflow.kernels.SquaredExponential(0.6, lengthscales=0.8 * k.lengthscales)
    Z = Z if name == "KernelisedSVGP" else Z[:25]
    return getattr(gvi.covariances, name)(k, Z, base_kernel=own)


def errors(B: int, kinds: dict[str, CovarianceDistance], sizes: Sizes, seed: int = 0) -> list[Row]:
    """Return relative errors of W₂² in percent, with inducing points by greedy variance."""
    rows = []
    for covariance in sizes.covariances:
        for D, lengthscale in sizes.kernels:
            X = np.random.default_rng(seed).normal(size=(B, D))
            k = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)
            Z = gvi.inducing.greedy_variance(X, M, kernel=k).points
            p = gvi.GaussianProcess(gpflow.functions.Zero(), k)
            q = gvi.GaussianProcess(gpflow.functions.Zero(), posterior(covariance, k, X, Z))
            exact = float(GaussianWasserstein()(q, p, X))
            row: Row = {"covariance": covariance, "D": D, "lengthscale": lengthscale, "W₂²": exact}
            for name, kind in kinds.items():
                row[f"{name} (%)"] = 100.0 * (float(GaussianWasserstein(kind)(q, p, X)) / exact - 1)
            rows.append(row)
    return rows


def all_errors(sizes: Sizes) -> dict[str, list[Row]]:
    """Return the tables of errors; `newton_schulz` of the smaller batch alone."""
    small, large = sizes.errors
    return {
        f"Errors at B = {small}": errors(
            small, {**ESTIMATORS, "newton_schulz": NewtonSchulz()}, sizes
        ),
        f"Errors at B = {large}": errors(large, ESTIMATORS, sizes),
    }


def parts(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, list[Row]]]]:
    """Return the parts of this benchmark, which give tables."""
    rounds, sizes = timing.rounds(options), QUICK if options.quick else Sizes()
    return {
        "distance": lambda: {"Distance and gradient": dense(rounds, sizes)},
        "steps": lambda: {"Steps with a distance on function space": linear(rounds, sizes)},
        "errors": lambda: all_errors(sizes),
    }


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure, and return the tables."""
    return {title: rows for part in parts(options).values() for title, rows in part().items()}


def main() -> None:
    """Print the tables, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="distance, steps, errors; all if none are named")
    timing.add_arguments(parser)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    timing.one_core()
    tables = {}
    for part, measure in parts(options).items():
        if part in (options.parts or parts(options)):
            tables |= measure()
    for title, rows in tables.items():
        print(timing.titled(title, rows), flush=True)
    if options.output:
        options.output.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Operations, distances and training steps on a GPU, in both precisions.

    python -m benchmarks.device --outputs 10 --rows 1000

Milliseconds are of the wall clock, and of one device: the first GPU, or the processor where there
is none (with smaller sizes, unless they are given). The peak is the rate of the fastest operation
measured here, not the manufacturer's figure. Floating point operations are nominal: 2n³ for a
product, n³/3 for a Cholesky factor, n³ for a triangular solve, 9n³ for an eigendecomposition, and
their sum for the distances. The bound of a distance is the operation with the largest part of its
time, as measured alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.divergences import GaussianWasserstein
from gpflow_gvi.divergences.wasserstein import Exact, LowRank, NewtonSchulz

from . import steps, timing
from .peers import inputs
from .timing import Row

PRECISIONS = {"float32": (np.float32, 1e-5), "float64": (np.float64, 1e-6)}
"""Types, and their jitter."""

OPERATIONS: dict[str, tuple[float, Callable[[tf.Tensor], tf.Tensor]]] = {
    "product": (2.0, lambda K: tf.matmul(K, K)),
    "cholesky": (1.0 / 3.0, tf.linalg.cholesky),
    "triangular solve": (1.0, lambda K: tf.linalg.triangular_solve(K, K)),
    "eigh": (9.0, lambda K: tf.linalg.eigh(K)[1]),
}
"""Nominal operations, as multiples of n³, and the functions that execute them."""

ITERATIONS = {"float32": 16, "float64": 41}
"""Steps of Newton and Schulz, of three products each."""


def device_name() -> str:
    """Return the name of the first GPU, or "CPU"."""
    for gpu in tf.config.list_physical_devices("GPU"):
        return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
    return "CPU"


def data(B: int, M: int) -> list[np.ndarray]:
    """Return X, Y and inducing points in GPflow's precision."""
    return [part.astype(gpflow.config.default_float()) for part in inputs(B, M)]


def covariances(J: int, B: int) -> tf.Tensor:
    """Return well-conditioned covariances [J, B, B] of standard normal inputs in 8 dimensions."""
    X = data(J * B, 1)[0]
    K = tf.stack([steps.kernel()(part) for part in np.split(X, J)])
    return K + tf.eye(B, dtype=K.dtype)


def operations(J: int, B: int, rounds: int) -> list[Row]:
    """Return milliseconds and GFLOP/s of each operation on J matrices, and of the peak."""
    K = covariances(J, B)
    side = round((J * B**3) ** (1 / 3))
    large = tf.random.normal([side, side], dtype=K.dtype)  # as much work, in one matrix
    work = {"one large product": 2.0 * side**3}
    cases = {"one large product": timing.timed(_compiled(lambda: tf.matmul(large, large)))}
    for name, (flops, function) in OPERATIONS.items():
        work[name] = flops * J * B**3
        cases[name] = timing.timed(_compiled(lambda function=function: function(K)))
    seconds = timing.medians(cases, rounds)
    rates = {name: 1e-9 * work[name] / value for name, value in seconds.items()}
    peak = max(rates.values())
    return [
        {
            "operation": name,
            "ms": 1e3 * value,
            "GFLOP/s": rates[name],
            "of peak": rates[name] / peak,
        }
        for name, value in seconds.items()
    ]


def distances(J: int, B: int, rounds: int, operations: list[Row]) -> list[Row]:
    """Return milliseconds of distances with their gradients, and the bound of each."""
    precision = np.dtype(gpflow.config.default_float()).name
    counts = {  # the products, factors and decompositions of each estimator
        "exact": {"product": 3.0, "cholesky": 1.0, "eigh": 1.0},
        "newton_schulz": {"product": 3.0 * ITERATIONS[precision] + 2.0},
    }
    alone = {row["operation"]: row["ms"] for row in operations}
    peak = max(row["GFLOP/s"] for row in operations)
    kinds = {"exact": Exact(), "newton_schulz": NewtonSchulz(), "low_rank": LowRank()}
    cases = {name: timing.timed(_distance(kind, J, B)) for name, kind in kinds.items()}
    rows = []
    for name, value in timing.medians(cases, rounds, at_least=0.0).items():
        row: Row = {
            "estimator": name,
            "ms": 1e3 * value,
            "GFLOP/s": "",
            "of peak": "",
            "bound by": "",
        }
        if name in counts:
            flops = sum(n * OPERATIONS[part][0] for part, n in counts[name].items()) * J * B**3
            shares = {part: n * alone[part] / row["ms"] for part, n in counts[name].items()}
            largest = max(shares, key=shares.__getitem__)
            rate = 1e-9 * flops / value
            row["GFLOP/s"], row["of peak"] = f"{rate:.3g}", f"{rate / peak:.2f}"
            row["bound by"] = f"{largest}, {100.0 * shares[largest]:.0f} %"
        rows.append(row)
    return rows


def _distance(kind: Any, J: int, B: int) -> Callable[[], Any]:
    """Return a distance between J outputs with kernels of their own, and its gradient."""
    X, _, Z = data(B, 100)
    parts = [gpflow.kernels.SquaredExponential(lengthscales=1.0 + 0.1 * j) for j in range(J)]
    k = gpflow.kernels.SeparateIndependent(parts)
    p = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    q = gvi.GaussianProcess(gpflow.functions.Zero(), gvi.covariances.CholeskySVGP(k, Z))
    divergence = GaussianWasserstein(kind)

    def evaluate() -> Any:
        with tf.GradientTape() as tape:
            value = divergence(q, p, X)
        return value, tape.gradient(value, q.trainable_variables)

    return _compiled(evaluate)


def in_steps(B: int, M: int, rounds: int) -> list[Row]:
    """Return milliseconds of training steps."""
    X, Y, _ = data(B, M)
    models = {"SVGP": steps.svgp(B, M), "PGVI": steps.pgvi("CholeskySVGP", B, M)}
    models["PGVI with low_rank"] = steps.pgvi("CholeskySVGP", B, M)
    models["PGVI with low_rank"].divergence = GaussianWasserstein("low_rank")
    cases = {
        name: timing.timed(_awaited(steps.step(model, X, Y))) for name, model in models.items()
    }
    seconds = timing.medians(cases, rounds)
    return [
        {"B": B, "M": M, "model": name, "ms": 1e3 * value, "ratio": value / seconds["SVGP"]}
        for name, value in seconds.items()
    ]


def _compiled(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that waits for a graph, and leaves its results on the device."""
    return _awaited(tf.function(function, autograph=False))


def _awaited(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that ends when the device has: the host does not wait for gradients."""

    def run() -> None:
        function()
        tf.test.experimental.sync_devices()

    return run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--outputs", type=int, help="J, of the distances: 10 on a GPU, or 2")
    parser.add_argument("--rows", type=int, help="B, of the distances: 1000 on a GPU, or 300")


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure, and return the tables."""
    name = device_name()
    J = options.outputs or (2 if name == "CPU" else 10)
    B = options.rows or (300 if name == "CPU" else 1000)
    size, rounds = (5000, 100), timing.rounds(options)
    if options.quick:
        J, B, size = 2, 30, (20, 5)
    tables = {}
    for precision, (dtype, jitter) in PRECISIONS.items():
        config = gpflow.config.Config(float=dtype, jitter=jitter)
        with timing.by_the_wall(), gpflow.config.as_context(config):
            where = f"{name}, {precision}"
            alone = operations(J, B, rounds)
            tables[f"Operations, {J} matrices of {B}, {where}"] = alone
            found = distances(J, B, rounds, alone)
            tables[f"Distances with gradients, J = {J}, B = {B}, {where}"] = found
            tables[f"Steps, {where}"] = in_steps(*size, rounds)
    return tables


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    timing.add_arguments(parser)
    for title, rows in run(parser.parse_args()).items():
        print(timing.titled(title, rows), flush=True)


if __name__ == "__main__":
    main()

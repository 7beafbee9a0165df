"""Time `greedy_variance` against the same factorisation written out in NumPy.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/selection.py

Both run on one core, in turns, and choose the same points; times are medians, in seconds of
processor time, so that other work on the machine counts for little. The first call, which traces
the graph, is shown apart.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_gvi.inducing import greedy_variance, uniform

CASES = [
    # N, D, M, lengthscale
    (10_000, 8, 100, 2.8),
    (10_000, 8, 300, 2.8),
    (10_000, 8, 300, 1.0),
    (10_000, 8, 300, 8.0),
    (10_000, 2, 300, 0.3),
    (10_000, 1, 100, 0.05),
    (1_000, 8, 100, 2.8),
    (100_000, 8, 300, 2.8),
]


def pivoted_cholesky(X: np.ndarray, M: int, lengthscale: float) -> np.ndarray:
    """Return the first M pivots of exp(-|x - x'|² / 2ℓ²), one step at a time."""
    X = X / lengthscale
    L = np.zeros((M, len(X)))
    variance = np.ones(len(X))
    pivots = np.empty(M, dtype=int)
    for m in range(M):
        p = pivots[m] = variance.argmax()
        row = np.exp(-0.5 * np.square(X - X[p]).sum(-1)) - L[:m, p] @ L[:m]
        L[m] = row / np.sqrt(variance[p])
        variance = np.maximum(variance - L[m] ** 2, 0.0)
        variance[pivots[: m + 1]] = -np.inf
    return pivots


def seconds(function: Callable[[], np.ndarray]) -> float:
    """Return how much processor time a call takes."""
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(N: int, D: int, M: int, lengthscale: float, repeats: int) -> str:
    """Return one row of the table."""
    X = np.random.default_rng(0).normal(size=(N, D))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)

    order = uniform(X, N).indices  # the order in which ties are broken
    shuffled = X[order]

    def ours() -> np.ndarray:
        return greedy_variance(X, M, kernel=kernel).indices

    def reference() -> np.ndarray:
        return order[pivoted_cholesky(shuffled, M, lengthscale)]

    first_call = seconds(ours)
    times = np.median([(seconds(ours), seconds(reference)) for _ in range(repeats)], axis=0)
    same = np.mean(ours() == reference())
    return (
        f"| {N:,} | {D} | {M} | {lengthscale:g} | {first_call:.2f} | {times[0]:.3f} "
        f"| {times[1]:.3f} | {times[0] / times[1]:.2f} | {same:.0%} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9, help="calls of each for a median")
    repeats = parser.parse_args().repeats
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    greedy_variance(np.eye(2), 1, kernel=gpflow.kernels.Linear())  # TensorFlow's own first call
    print(
        "| N | D | M | lengthscale | first call (s) | ours (s) | NumPy (s) | ratio | same points |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for case in CASES:
        print(compare(*case, repeats=min(repeats, 3) if case[0] > 10_000 else repeats), flush=True)


if __name__ == "__main__":
    main()

"""Time `greedy_variance` against the same factorisation written out in NumPy.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python -m benchmarks.selection

Both run alternately on one core and choose the same points; "textbook" is the loop that computes
all variances again for each point, in O(NM³). Times are medians, in seconds of processor time, so
that other processes have little influence. The first call, which traces the graph, has a column of
its own.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import scipy.linalg
import tensorflow as tf

from gpflow_gvi.regulariser.inducing_points import greedy_variance, uniform

if __package__:
    from .timing import Row, add_arguments, medians, rounds, table, timed
else:
    from timing import Row, add_arguments, medians, rounds, table, timed

CASES = [
    # N, D, M, lengthscale
    (10_000, 8, 100, 2.8),
    (10_000, 8, 300, 2.8),
    (10_000, 8, 300, 1.0),
    (10_000, 8, 300, 8.0),
    (10_000, 2, 300, 0.3),
    (10_000, 1, 100, 0.05),
    (1_000, 8, 100, 2.8),
    (1_000, 1, 100, 0.05),
    (300, 8, 100, 2.8),
    (300, 1, 100, 0.05),
    (100, 8, 50, 2.8),
    (100_000, 8, 300, 2.8),
]


WITH_TEXTBOOK = CASES[:2]
QUICK = [(40, 8, 5, 2.8), (30, 1, 5, 0.05)]


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


def textbook(X: np.ndarray, M: int, lengthscale: float) -> np.ndarray:
    """Return the same pivots from the formula: all variances given the m chosen, m = 1 to M."""

    def covariance(S: np.ndarray) -> np.ndarray:
        squares = (S**2).sum(-1)[:, None] + (X**2).sum(-1) - 2.0 * S @ X.T
        return np.exp(-0.5 * np.maximum(squares, 0.0) / lengthscale**2)

    pivots = [0]
    while len(pivots) < M:
        Ksx = covariance(X[pivots])
        L = np.linalg.cholesky(Ksx[:, pivots] + 1e-12 * np.eye(len(pivots)))
        variance = 1.0 - (scipy.linalg.solve_triangular(L, Ksx, lower=True) ** 2).sum(0)
        variance[pivots] = -np.inf
        pivots.append(int(variance.argmax()))
    return np.array(pivots)


def compare(N: int, D: int, M: int, lengthscale: float, repeats: int) -> Row:
    """Return one row of the table."""
    X = np.random.default_rng(0).normal(size=(N, D))
    kernel = gpflow.kernels.SquaredExponential(lengthscales=lengthscale)

    order = uniform(X, N).indices  # the order in which ties are broken
    shuffled = X[order]

    def ours() -> np.ndarray:
        return greedy_variance(X, M, kernel=kernel).indices

    def reference() -> np.ndarray:
        return order[pivoted_cholesky(shuffled, M, lengthscale)]

    loop = np.nan
    if (N, D, M, lengthscale) in WITH_TEXTBOOK:  # once, as it takes long
        loop = timed(lambda: textbook(shuffled, M, lengthscale))(1)
    first_call = timed(ours)(1)
    mine, theirs = medians({"ours": timed(ours), "NumPy": timed(reference)}, repeats).values()
    return {
        "N": N,
        "D": D,
        "M": M,
        "lengthscale": lengthscale,
        "first call (s)": first_call,
        "gpflow-gvi (s)": mine,
        "NumPy (s)": theirs,
        "ratio": mine / theirs,
        "textbook (s)": loop,
        "same points": float(np.mean(ours() == reference())),
    }


def rows(options: argparse.Namespace) -> list[Row]:
    """Return the table."""
    cases, repeats = QUICK if options.quick else CASES, rounds(options)
    greedy_variance(np.eye(2), 1, kernel=gpflow.kernels.Linear())  # TensorFlow's own first call
    return [compare(*case, min(repeats, 3) if case[0] > 10_000 else repeats) for case in cases]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    print(table(rows(options)))


if __name__ == "__main__":
    main()

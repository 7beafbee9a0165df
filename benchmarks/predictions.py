"""Predictions of a fitted model: those of `learn`, those of its SavedModel, and GPflow's posterior.

    python -m benchmarks.predictions

Milliseconds of processor time of one call for 1, 100, 10,000 and 100,000 rows of 8 columns, with
M = 200 inducing points, in float64 on one core. `predict_y` of `Learned` is beside the exported
model, both given an array; `posterior().predict_f` of PGVI beside that of GPflow's SVGP with the
same parameters. Each figure is the least of many calls, as other processes only ever add to it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi

if __package__:
    from . import timing
    from .peers import D, inputs
    from .steps import kernel
    from .timing import Row
else:
    import timing
    from peers import D, inputs
    from steps import kernel
    from timing import Row

M = 200
SIZES = (1, 100, 10_000, 100_000)
SECONDS = 1.5
"""How long a case is repeated."""

AT_A_TIME = 5


def least(cases: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the least milliseconds of a call of each; they take turns of several calls."""
    found = dict.fromkeys(cases, np.inf)
    end = time.process_time() + seconds * len(cases)
    while time.process_time() < end:
        for name, call in cases.items():
            for _ in range(AT_A_TIME):  # the first ones trace, or find nothing in caches
                start = time.process_time()
                call()
                found[name] = min(found[name], 1e3 * (time.process_time() - start))
    return found


def learned() -> gvi.Learned:
    """Return what `learn` makes of 2,000 rows with M inducing points."""
    X, Y, _ = inputs(2_000, 1)
    options = {"predictor": None, "noise": "constant", "effort": "fast", "num_inducing": M}
    return gvi.learn((X, Y), seed=0, **options)


def posteriors() -> dict[str, Any]:
    """Return the posteriors of PGVI and of SVGP with the same kernel, points and inducing law."""
    rng = np.random.default_rng(0)
    Z = gpflow.inducing_variables.InducingPoints(inputs(1, M)[2])
    q_mu, q_sqrt = (
        rng.normal(size=(M, 1)),
        np.tril(0.01 * rng.normal(size=(M, M))) + 0.3 * np.eye(M),
    )
    k, likelihood = kernel(), gpflow.likelihoods.Gaussian(0.1)
    svgp = gpflow.models.SVGP(k, likelihood, Z, q_mu=q_mu, q_sqrt=q_sqrt[None])
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(k, Z, q_mu=q_mu),
        gvi.covariances.CholeskySVGP(k, Z, q_sqrt=q_sqrt[None]),
    )
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    pgvi = gvi.models.PGVI(P, Q, likelihood, num_data=2_000)
    return {"PGVI posterior": pgvi.posterior(), "GPflow SVGP posterior": svgp.posterior()}


def rows(sizes: tuple[int, ...] = SIZES, seconds: float = SECONDS) -> list[Row]:
    """Return milliseconds and ratios for each number of rows."""
    fitted, of_gps, found = learned(), posteriors(), []
    with tempfile.TemporaryDirectory() as folder:
        gvi.export(fitted, Path(folder) / "exported")
        loaded = tf.saved_model.load(str(Path(folder) / "exported"))
        exported = loaded.signatures["predict"]
        for N in sizes:
            x = np.random.default_rng(N).normal(size=(N, D))
            X = tf.constant(x)
            cases = {
                "predict_y": lambda x=x: fitted.predict_y(x),
                "exported": lambda x=x: exported(X=tf.constant(x)),
                **{name: lambda X=X, p=p: p.predict_f(X) for name, p in of_gps.items()},
            }
            ms = least(cases, seconds)
            ours, theirs = of_gps
            ratios = ms["predict_y"] / ms["exported"], ms[ours] / ms[theirs]
            found.append(
                {
                    "rows": N,
                    "predict_y": ms["predict_y"],
                    "exported": ms["exported"],
                    "ratio": ratios[0],
                    ours: ms[ours],
                    theirs: ms[theirs],
                    "ratio of these": ratios[1],
                }
            )
    return found


def memory(N: int = 1_000_000) -> list[Row]:
    """Return by how many MiB the process grows at most while it predicts N rows."""
    fitted = learned()
    x = np.repeat(np.random.default_rng(0).normal(size=(N // 1_000, D)), 1_000, axis=0)
    for _ in range(2):
        fitted.predict_y(x[:10])
    before = timing.peak_memory()
    start = time.process_time()
    fitted.predict_y(x)
    spent = time.process_time() - start
    return [{"rows": N, "s": spent, "MiB": timing.peak_memory() - before}]


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure, and return the tables."""
    if options.quick:
        return {"Memory": memory(1_000), "Predictions": rows((1, 20), seconds=0.02)}
    return {"Memory": memory(), "Predictions": rows()}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    timing.add_arguments(parser)
    timing.one_core()
    for title, found in run(parser.parse_args()).items():
        print(timing.titled(title, found), flush=True)


if __name__ == "__main__":
    main()

"""A training step, loss and gradient, of PGVI and of SVGP; and the time that `fit` adds to a step.

    python -m benchmarks.steps --gpjax PYTHON --gpytorch PYTHON

Both train on batches of B rows of 8 columns, with M inducing points, an ARD squared exponential
kernel, a network of ten tanh units as the mean and Gaussian noise, in float64 on one core. SVGP has
two rows: with trained kernel and inducing points, the default of GPflow, and with both fixed, as in
most rows of PGVI. Ratios are to the first. "As learn has it" is a sparse posterior P, and a Q that
starts at P with a network added to its mean. GPyTorch and GPJax are timed, in both ways, if this
interpreter, or one given by an option, can import them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import keras
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.regulariser.evidence import DataEvidence
from gpflow_gvi.training.fit_constants import Constants

if __package__:
    from . import timing
    from .peers import STEPS, UNITS, D, Peer, can_import, inputs
    from .timing import Row, Timed
else:
    import timing
    from peers import STEPS, UNITS, D, Peer, can_import, inputs
    from timing import Row, Timed

SIZES = [(B, M) for M in (32, 100) for B in (100, 1000, 5000)]

COVARIANCES: dict[str, Callable[..., gpflow.kernels.Kernel]] = {
    "CholeskySVGP": gvi.covariances.CholeskySVGP,
    "DiagonalSVGP": gvi.covariances.DiagonalSVGP,
    "KernelisedSVGP": gvi.covariances.KernelisedSVGP,
    "FixedSparsePosterior": gvi.covariances.FixedSparsePosterior,
    "SparsePosterior": gvi.covariances.SparsePosterior,
}
AS_LEARNED = "as learn has it"
REFERENCE = "GPflow SVGP"
WHOLE = "fit, an epoch a call"
FIXED = ", kernel and Z fixed"
"""Follows the name of the fair peer of a covariance whose kernel and inducing points are P's."""


def kernel(D: int = D) -> gpflow.kernels.Kernel:
    """Return the kernel of all models."""
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(D, D**0.5))


def network(outputs: int = 1, D: int = D) -> gvi.mean_functions.Network:
    """Return the mean of all models."""
    dense, dtype = keras.layers.Dense, np.dtype(gpflow.config.default_float()).name
    layers = [dense(UNITS, "tanh", dtype=dtype), dense(outputs, dtype=dtype)]
    return gvi.mean_functions.Network(keras.Sequential([keras.Input((D,), dtype=dtype), *layers]))


def pgvi(name: str, B: int, M: int, num_data: int | None = None) -> gvi.models.PGVI:
    """Return PGVI with a covariance; P is the prior, or for the last one its sparse posterior."""
    X, Y, Z = (part.astype(gpflow.config.default_float()) for part in inputs(B, M))
    P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel())
    if name == AS_LEARNED:
        P = DataEvidence().posterior(P, 0.1, (Z, None), (X, Y))
        copy = gpflow.utilities.deepcopy(P)
        Q = gvi.GaussianProcess(copy.mean_function + network(), copy.kernel)
    else:
        Q = gvi.GaussianProcess(network(), COVARIANCES[name](P.kernel, Z))
    num_data = 10 * max(B, M) if num_data is None else num_data
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.1), num_data=num_data)


def svgp(B: int, M: int, *, fixed: bool = False) -> gpflow.models.SVGP:
    """Return GPflow's SVGP."""
    model = gpflow.models.SVGP(
        kernel(),
        gpflow.likelihoods.Gaussian(0.1),
        inputs(B, M)[2].astype(gpflow.config.default_float()),
        mean_function=network(),
        num_data=10 * max(B, M),
    )
    if fixed:
        gpflow.set_trainable(model.kernel, False)
        gpflow.set_trainable(model.inducing_variable, False)
    return model


def step(model: gpflow.models.SVGP, X: np.ndarray, Y: np.ndarray) -> Callable[[], Any]:
    """Return a compiled evaluation of the training loss of a batch and its gradient.

    As in `fit`, what no step of our models changes is there beforehand.
    """
    variables = model.trainable_variables
    batch = tf.constant(X), tf.constant(Y), tf.range(len(X))
    constants = Constants(variables)
    constants.begin(*batch[:2])
    is_ours = isinstance(model, gvi.models.GVI)

    @tf.function(autograph=False)
    def run(X: tf.Tensor, Y: tf.Tensor, numbers: tf.Tensor) -> Any:
        beforehand = constants.at(X, numbers) if is_ours else contextlib.nullcontext()
        with tf.GradientTape(watch_accessed_variables=False) as tape, beforehand:
            for variable in variables:
                tape.watch(variable)
            loss = model.training_loss((X, Y))
        return loss, tape.gradient(loss, variables)

    return lambda: run(*batch)[0].numpy()


def models(B: int, M: int) -> dict[str, gpflow.models.SVGP]:
    """Return all models."""
    ours = {name: pgvi(name, B, M) for name in (*COVARIANCES, AS_LEARNED)}
    return {REFERENCE: svgp(B, M), REFERENCE + FIXED: svgp(B, M, fixed=True), **ours}


def steps(sizes: Iterable[tuple[int, int]], peers: dict[str, Peer], rounds: int) -> list[Row]:
    """Return milliseconds of a step of each model, and ratios to SVGP's."""
    rows = []
    for B, M in sizes:
        X, Y, _ = inputs(B, M)
        cases: dict[str, Timed] = {
            name: timing.timed(step(model, X, Y)) for name, model in models(B, M).items()
        }
        cases |= {f"{name} SVGP": peer.timed(B, M) for name, peer in peers.items()}
        cases |= {
            f"{name} SVGP{FIXED}": peer.timed(B, M, fixed=True) for name, peer in peers.items()
        }
        seconds = timing.medians(cases, rounds)
        rows += [
            {"B": B, "M": M, "model": name, "ms": 1e3 * value, "ratio": value / seconds[REFERENCE]}
            for name, value in seconds.items()
        ]
    return rows


def in_fit(B: int = 100, M: int = 32, count: int = 1000, rounds: int = 9) -> list[Row]:
    """Return milliseconds of a step inside `fit`, and those of a bare loop in one graph.

    Compiled calls are of a tenth of an epoch, or of a whole one.
    """
    X, Y, _ = inputs(B * count, M)
    rows = []
    for name in COVARIANCES:
        cases = {
            key: timing.timed(fit(pgvi(name, B, M, len(X)), X, Y, B, most))
            for key, most in {"fit": count // 10, WHOLE: count}.items()
        }
        bare = pgvi(name, B, M, len(X))
        cases["bare loop"] = timing.timed(bare_loop(bare, X[:B], Y[:B], count))
        ms = {key: 1e3 * value / count for key, value in timing.medians(cases, rounds).items()}
        added = ms[WHOLE] - ms["bare loop"]
        rows.append({"B": B, "M": M, "covariance": name, **ms, "added in a call": added})
    return rows


def fit(
    model: gvi.models.PGVI, X: np.ndarray, Y: np.ndarray, B: int, most: int
) -> Callable[[], Any]:
    """Return an epoch of `fit`, with the given number of steps in each compiled call."""
    model.compile(keras.optimizers.Adam(1e-4), steps_per_execution=most)
    return lambda: model.fit((X, Y), batch_size=B, verbose=0)


def bare_loop(
    model: gvi.models.PGVI, X: np.ndarray, Y: np.ndarray, count: int
) -> Callable[[], Any]:
    """Return a graph of the given number of steps of Adam on one batch, and of nothing else."""
    variables = model.trainable_variables
    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(list(variables))
    batch = tf.constant(X), tf.constant(Y)

    def body(i: tf.Tensor) -> tuple[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = model.training_loss(batch)
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return (i + 1,)

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        return tf.while_loop(lambda i: i < count, body, (tf.constant(0),))[0]

    return lambda: run().numpy()


@contextlib.contextmanager
def open_peers(options: argparse.Namespace) -> Iterator[dict[str, Peer]]:
    """Start the processes of the other libraries that can be imported."""
    peers = {}
    for name in STEPS:
        python = getattr(options, name) or sys.executable
        if can_import(name, python):
            peers[name] = Peer(name, python)
        else:
            print(f"{name}: {python} cannot import it, left out", flush=True)
    try:
        yield peers
    finally:
        for peer in peers.values():
            peer.close()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    for name in STEPS:
        parser.add_argument(f"--{name}", metavar="PYTHON", help=f"an interpreter that has {name}")
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=SIZES,
        type=lambda text: tuple(map(int, text.split("x"))),
        help="batches and inducing points, as 1000x100",
    )


def run(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure, and return the table."""
    sizes = [(20, 5)] if options.quick else options.sizes
    with open_peers(options) as peers:
        return {"Steps": steps(sizes, peers, timing.rounds(options))}


def run_in_fit(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure steps inside `fit`, and return the table."""
    small = {"B": 20, "M": 5, "count": 20} if options.quick else {}
    return {"Steps inside fit": in_fit(**small, rounds=timing.rounds(options))}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser)
    timing.add_arguments(parser)
    timing.one_core()
    options = parser.parse_args()
    for title, rows in {**run(options), **run_in_fit(options)}.items():
        print(timing.titled(title, rows))


if __name__ == "__main__":
    main()

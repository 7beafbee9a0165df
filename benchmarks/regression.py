"""`learn` with its default recipe, GPflow's models and a network, on real data.

    GPFLOW_GVI_DATA=... python benchmarks/regression.py yacht energy --splits 5

Features and targets are standardised on the training part; the figures are on that scale. `learn`
holds out a tenth of the training part for validation; so does the network, for early stopping. The
GPflow models use all of it. All models of a split have the same training data, without the test
part.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi import metrics
from gpflow_gvi.learning import recipe
from gpflow_gvi.learning.scaling import Scaling
from gpflow_gvi.learning.settings import NUM_INDUCING

if __package__:
    from .data import Split, add_argument, load_split
else:
    from data import Split, add_argument, load_split

MOST_ROWS_OF_GPR = 2000
Prediction = tuple[np.ndarray, np.ndarray]


class Row(NamedTuple):
    """One model on one split."""

    data: str
    split: int
    model: str
    nll: float
    rmse: float
    coverage: float
    seconds: float


def pgvi(part: Split, seed: int) -> Prediction:
    """The default recipe, with marginal divergences."""
    return gvi.learn((part.X, part.Y), seed=seed).predict_y(part.X_test)


def gwi(part: Split, seed: int) -> Prediction:
    """The default recipe, with the 2-Wasserstein distance on function space."""
    learned = gvi.learn((part.X, part.Y), model=gvi.models.GWI, seed=seed)
    return learned.predict_y(part.X_test)


def gpr(part: Split, seed: int) -> Prediction:
    """GPflow's exact Gaussian process with an ARD kernel."""
    model = gpflow.models.GPR((part.X, part.Y), _ard(part.X), noise_variance=0.1)
    _minimise(model.training_loss, model, 1000)
    return model.predict_y(part.X_test)


def svgp(part: Split, seed: int) -> Prediction:
    """GPflow's SVGP with as many inducing points as the recipe, which it trains."""
    N = len(part.X)
    kernel = _ard(part.X)
    M = min(NUM_INDUCING, N)
    Z = gvi.inducing.kmeans(part.X, M, seed=seed).points
    model = gpflow.models.SVGP(kernel, gpflow.likelihoods.Gaussian(0.1), Z, num_data=N)
    if N <= MOST_ROWS_OF_GPR:
        _minimise(model.training_loss_closure((part.X, part.Y)), model, 1000)
        return model.predict_y(part.X_test)
    batches = tf.data.Dataset.from_tensor_slices((part.X, part.Y)).repeat().shuffle(N, seed=seed)
    closure = model.training_loss_closure(iter(batches.batch(500)))
    optimiser = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(0.01, 10_000))

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = closure()
        variables = model.trainable_variables
        optimiser.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    optimiser.build(list(model.trainable_variables))
    for _ in range(10_000):
        step()
    return model.predict_y(part.X_test)


def network(part: Split, seed: int) -> Prediction:
    """The recipe's network, trained by maximum likelihood with one noise for all points."""
    import keras

    order = np.random.default_rng(seed).permutation(len(part.X))
    held_out, seen = np.split(order, [len(order) // 10])
    net = recipe.network(part.X.shape[-1], 1, seed=seed)
    net.layers[-1].kernel.assign(keras.initializers.GlorotUniform(seed=seed)((50, 1)))
    net.compile(keras.optimizers.Adam(3e-3), "mse", steps_per_execution=10)
    stop = keras.callbacks.EarlyStopping(patience=50, restore_best_weights=True)
    net.fit(
        part.X[seen],
        part.Y[seen],
        batch_size=max(32, len(seen) // 50),
        epochs=2000 if len(seen) < MOST_ROWS_OF_GPR else 300,
        validation_data=(part.X[held_out], part.Y[held_out]),
        callbacks=[stop],
        verbose=0,
    )
    residual = part.Y[held_out] - net.predict(part.X[held_out], verbose=0)
    mean = net.predict(part.X_test, verbose=0)
    return mean, np.full(mean.shape, np.mean(np.square(residual)))


MODELS: dict[str, Callable[[Split, int], Prediction]] = {
    "PGVI": pgvi,
    "GWI": gwi,
    "SVGP": svgp,
    "GPR": gpr,
    "network": network,
}


def main() -> None:
    """Run the models, print a table, and write the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="yacht, energy, concrete, naval or protein")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--output", type=Path, help="a JSON file for the rows")
    add_argument(parser)
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.data:
        for split in range(options.splits):
            part = standardised(load_split(Path(options.data_dir), name, split))
            for model in options.models:
                if model == "GPR" and len(part.X) > MOST_ROWS_OF_GPR:
                    continue
                rows.append(_run(name, split, model, part))
                print("{:<10}{:>3}  {:<8} nll {:7.3f}  rmse {:.4f}".format(*rows[-1]), flush=True)
                if options.output:
                    options.output.write_text(json.dumps([row._asdict() for row in rows], indent=1))
    print(table(rows))


def table(rows: list[Row]) -> str:
    """Return the averages over splits, with standard errors of the NLL, as Markdown."""
    lines = [
        "| data | model | NLL | RMSE | 95 % coverage | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for key in dict.fromkeys((row.data, row.model) for row in rows):
        own = [row for row in rows if (row.data, row.model) == key]
        nll = np.array([row.nll for row in own])
        error = nll.std(ddof=1) / np.sqrt(len(nll)) if len(nll) > 1 else float("nan")
        rmse, inside, seconds = (
            np.mean([getattr(row, field) for row in own])
            for field in ("rmse", "coverage", "seconds")
        )
        lines.append(
            f"| {key[0]} | {key[1]} | {nll.mean():.3f} ± {error:.3f} | {rmse:.4f} | {inside:.3f} "
            f"| {seconds:.0f} |"
        )
    return "\n".join(lines)


def _run(name: str, split: int, model: str, part: Split) -> Row:
    start = time.perf_counter()
    mean, variance = (np.asarray(value) for value in MODELS[model](part, split))
    seconds = time.perf_counter() - start
    half = 1.959964 * np.sqrt(variance)
    return Row(
        name,
        split,
        model,
        metrics.nll(part.Y_test, mean, variance),
        metrics.rmse(part.Y_test, mean),
        metrics.coverage(part.Y_test, mean - half, mean + half),
        seconds,
    )


def standardised(part: Split) -> Split:
    """Return a split in the units of its training part."""
    of_X, of_Y = Scaling.of(part.X), Scaling.of(part.Y)
    X, X_test = (of_X.standard(value).numpy() for value in (part.X, part.X_test))
    Y, Y_test = (of_Y.standard(value).numpy() for value in (part.Y, part.Y_test))
    return Split(X, Y, X_test, Y_test)


def _ard(X: np.ndarray) -> gpflow.kernels.Kernel:
    D = X.shape[-1]
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(D, np.sqrt(D)))


def _minimise(closure: Callable[[], tf.Tensor], model: gpflow.Module, iterations: int) -> None:
    options = {"maxiter": iterations}
    gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, options=options)


if __name__ == "__main__":
    main()

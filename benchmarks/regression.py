"""`learn` with its default recipe, and what else one would take for a table of numbers.

    GPFLOW_GVI_DATA=... python -m benchmarks.regression --beside trees.json
    GPFLOW_GVI_DATA=... python -m benchmarks.regression yacht --splits 5 6 --models learn GPR

Data are the UCI sets, with the splits of the literature, and the tables, with their folds. Features
and targets are standardised on the training part; the figures are on that scale. All models of a
split have the same training data, without the test part. Boosted trees run in an environment of
their own, by `trees.py`. `ranks.py` compares the models over all data sets.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gpflow
import numpy as np
import tensorflow as tf
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import gpflow_gvi as gvi
from gpflow_gvi.learning.settings import NUM_INDUCING

if __package__:
    from . import honest_pool
    from .data import Split
    from .trees import Prediction, Row, add_arguments, run
else:
    import honest_pool
    from data import Split
    from trees import Prediction, Row, add_arguments, run

MAX_ROWS_OF_GPR = 2000
"""An exact Gaussian process is left out on more rows."""


def _predicted(learned: gvi.Learned, part: Split) -> Prediction:
    log_density = learned.predict_log_density((part.X_test, part.Y_test))
    return (*learned.predict_y(part.X_test), log_density)


def default(part: Split, seed: int) -> Prediction:
    """`learn` with its defaults."""
    return _predicted(gvi.learn((part.X, part.Y), seed=seed), part)


def around_catboost(part: Split, seed: int) -> Prediction:
    """`learn` around five-fold CatBoost, which has to be beside this package."""
    from catboost import CatBoostRegressor

    options = {"random_seed": seed, "verbose": False, "thread_count": 1}
    trees = CatBoostRegressor(**options, allow_writing_files=False)
    return _predicted(gvi.learn((part.X, part.Y), predictor=trees, seed=seed), part)


def fast(part: Split, seed: int) -> Prediction:
    """`learn` with the least effort."""
    return _predicted(gvi.learn((part.X, part.Y), effort="fast", seed=seed), part)


def trained(part: Split, seed: int) -> Prediction:
    """`learn` with a network in the mean of Q."""
    return gvi.learn((part.X, part.Y), epochs=20, seed=seed).predict_y(part.X_test)


def sgpr(part: Split, seed: int) -> Prediction:
    """GPflow's collapsed sparse Gaussian process with as many inducing points."""
    Z = gvi.inducing.kmeans(part.X, min(NUM_INDUCING, len(part.X)), seed=seed).points
    model = gpflow.models.SGPR((part.X, part.Y), _ard(part.X), Z, noise_variance=0.1)
    gpflow.set_trainable(model.inducing_variable, False)
    _minimise(model.training_loss, model, 200)
    return model.predict_y(part.X_test)


def gpr(part: Split, seed: int) -> Prediction:
    """GPflow's exact Gaussian process with an ARD kernel, the best of five starts."""
    if len(part.X) > MAX_ROWS_OF_GPR:
        return np.full(part.Y_test.shape, np.nan), np.full(part.Y_test.shape, np.nan)
    models = []
    for scale in (1.0, 0.3, 0.5, 2.0, 4.0):
        model = gpflow.models.GPR((part.X, part.Y), _ard(part.X, scale), noise_variance=0.1)
        _minimise(model.training_loss, model, 200)
        models.append((float(model.training_loss()), model))
    return min(models, key=lambda pair: pair[0])[1].predict_y(part.X_test)


def gpr_of_scikit_learn(part: Split, seed: int) -> Prediction:
    """scikit-learn's exact Gaussian process with an ARD kernel, the best of five starts."""
    if len(part.X) > MAX_ROWS_OF_GPR:
        return np.full(part.Y_test.shape, np.nan), np.full(part.Y_test.shape, np.nan)
    D = part.X.shape[1]
    kernel = ConstantKernel() * RBF(np.full(D, np.sqrt(D))) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(part.X, part.Y[:, 0])
    mean, sd = model.predict(part.X_test, return_std=True)
    return mean[:, None], sd[:, None] ** 2


def pool_of_simple_models(part: Split, seed: int) -> Prediction:
    """A pool of four simple models, which are judged by fits without the rows they predict."""
    moments, parts = honest_pool.predict(part.X, part.Y[:, 0], part.X_test)
    y = part.Y_test[:, 0]
    log_density = logsumexp([np.log(w) + law.logpdf(y) for w, law in parts], axis=0)
    mean, variance = (each[:, None] for each in moments)
    return mean, variance, log_density


def ensemble(part: Split, seed: int) -> Prediction:
    """Five networks with a mean and a variance each (Lakshminarayanan et al. 2017)."""
    import keras

    keras.utils.set_random_seed(seed)
    moments = []
    for _ in range(5):
        hidden = [keras.layers.Dense(50, "relu") for _ in range(2)]
        net = keras.Sequential([keras.Input(part.X.shape[1:]), *hidden, keras.layers.Dense(2)])
        net.compile(keras.optimizers.Adam(3e-3), _heteroskedastic_nll, steps_per_execution=10)
        stop = keras.callbacks.EarlyStopping(patience=30, restore_best_weights=True)
        net.fit(
            part.X,
            part.Y,
            batch_size=max(32, len(part.X) // 50),
            epochs=400 if len(part.X) < MAX_ROWS_OF_GPR else 100,
            validation_split=0.1,
            callbacks=[stop],
            verbose=0,
        )
        mean, raw = np.split(net.predict(part.X_test, verbose=0).astype(float), 2, axis=1)
        moments.append((mean, np.logaddexp(0.0, raw) + 1e-6))
    means, variances = (np.array(value) for value in zip(*moments, strict=True))
    mean = means.mean(axis=0)
    return mean, (variances + means**2).mean(axis=0) - mean**2


def _heteroskedastic_nll(y: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
    variance = tf.math.softplus(output[:, 1:]) + 1e-6
    return 0.5 * tf.reduce_mean(tf.math.log(variance) + tf.square(y - output[:, :1]) / variance)


MODELS: dict[str, Callable[[Split, int], Prediction]] = {
    "learn": default,
    "learn, fast": fast,
    "learn, network": trained,
    "SGPR": sgpr,
    "GPR": gpr,
    "scikit-learn GPR": gpr_of_scikit_learn,
    "simple pool": pool_of_simple_models,
    "ensemble": ensemble,
    "learn, CatBoost": around_catboost,
}

UNUSUAL = ("learn, network", "learn, CatBoost")
"""Models that are run only if they are asked for."""


def main() -> None:
    """Run the models, print tables, and write the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, (name for name in MODELS if name not in UNUSUAL))
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="rows of other runs")
    options = parser.parse_args()
    rows = run(options, MODELS)
    for path in options.beside:
        rows += [Row(**row) for row in json.loads(path.read_text())]
    rows = [row for row in rows if np.isfinite(row.nll)]
    print(table(rows))


def table(rows: list[Row]) -> str:
    """Return the averages over splits, with standard errors of NLL and CRPS, as Markdown."""
    lines = [
        "| data | model | NLL | CRPS | RMSE | 95 % coverage | processor s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for data, model in sorted({(row.data, row.model) for row in rows}):
        own = [row for row in rows if (row.data, row.model) == (data, model)]
        nll = _average([row.nll for row in own], 3)
        crps = _average([row.crps for row in own], 4)
        rmse, inside, seconds = (
            np.mean([getattr(row, field) for row in own])
            for field in ("rmse", "coverage", "seconds")
        )
        lines.append(
            f"| {data} | {model} | {nll} | {crps} | {rmse:.4f} | {inside:.3f} | {seconds:.1f} |"
        )
    return "\n".join(lines)


def _average(values: list[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"


def _ard(X: np.ndarray, scale: float = 1.0) -> gpflow.kernels.Kernel:
    D = X.shape[-1]
    return gpflow.kernels.SquaredExponential(lengthscales=np.full(D, scale * np.sqrt(D)))


def _minimise(closure: Callable[[], tf.Tensor], model: gpflow.Module, iterations: int) -> None:
    options = {"maxiter": iterations}
    gpflow.optimizers.Scipy().minimize(closure, model.trainable_variables, options=options)


if __name__ == "__main__":
    main()

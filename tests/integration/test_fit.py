"""fit is the training that a user would write by hand, and goes on where it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from tests.tolerances import assert_close

from .. import catalogue, networks

ROOT = Path(__file__).parents[2]
N, M = 50, 6
_RNG = np.random.default_rng(8)
X = _RNG.uniform(-2.0, 2.0, size=(N, 2))
Y = np.sin(2.0 * X[:, :1]) + 0.1 * _RNG.normal(size=(N, 1))


def kernel() -> gpflow.kernels.Kernel:
    return gpflow.kernels.SquaredExponential(lengthscales=0.8)


def make(covariance: str = "CholeskySVGP", divergence: str = "Renyi(0.3)") -> gvi.models.GVI:
    k, Z = kernel(), catalogue.inducing_points(X[:M])
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Inducing(k, Z), catalogue.COVARIANCES[covariance](k, Z)
    )
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    D = catalogue.DIVERGENCES[divergence]()
    return gvi.models.GVI(P, Q, gpflow.likelihoods.Gaussian(0.5), D, num_data=N)


def with_network() -> gvi.models.GVI:
    """A float32 network with batch normalisation and dropout in a float64 model."""
    keras.utils.set_random_seed(3)
    k = kernel()
    mean = gvi.mean_functions.Network(networks.regularised(keras, dropout=0.2))
    Q = gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(k, X[:M]))
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.5), num_data=N)


# As by hand.


def test_full_batch_is_the_loop_over_a_closure() -> None:
    model, by_hand = make(), make()
    model.compile(keras.optimizers.Adam(0.05))
    losses = model.fit((X, Y), batch_size=None, epochs=5, verbose=0).history["loss"]
    closure, variables = by_hand.training_loss_closure((X, Y)), by_hand.trainable_variables
    optimizer = keras.optimizers.Adam(0.05)
    for epoch in range(5):
        with tf.GradientTape() as tape:
            loss = closure()
        assert_close(losses[epoch], float(loss))
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
    for ours, theirs in zip(model.trainable_variables, variables, strict=True):
        assert_close(ours, theirs)


def test_fit_of_gpflows_svgp() -> None:
    """With the inducing KL the steps are those of GPflow's SVGP on the same batches."""
    model, k = make(divergence="InducingKL"), kernel()
    svgp = gpflow.models.SVGP(k, gpflow.likelihoods.Gaussian(0.5), X[:M], num_data=N, whiten=True)
    for module in (svgp.kernel, svgp.inducing_variable):  # P is frozen in ours
        gpflow.set_trainable(module, False)
    gpflow.set_trainable(model.inducing_variable, False)
    model.compile(keras.optimizers.SGD(1e-3))
    model.fit((X, Y), batch_size=20, epochs=2, shuffle=False, verbose=0)
    optimizer = keras.optimizers.SGD(1e-3)
    for start in (0, 20, 40, 0, 20, 40):
        with tf.GradientTape() as tape:
            loss = svgp.training_loss((X[start : start + 20], Y[start : start + 20]))
        gradients = tape.gradient(loss, svgp.trainable_variables)
        optimizer.apply_gradients(zip(gradients, svgp.trainable_variables, strict=True))
    assert_close(model.q_mu, svgp.q_mu)
    assert_close(model.q_sqrt, svgp.q_sqrt)


@pytest.mark.slow
def test_dropout_and_batch_normalisation_work_in_training_alone() -> None:
    model = with_network()
    model.compile(keras.optimizers.SGD(0.0))
    history = model.fit((X, Y), batch_size=None, verbose=0, validation_data=(X, Y)).history
    # The moving statistics have changed, and make the loss out of training.
    loss = float(model.training_loss((X, Y)))
    assert_close(history["val_loss"], [loss], precision=np.float32)  # that of the network
    assert abs(history["loss"][0] - history["val_loss"][0]) > 0.1
    first, norm, *_ = model.variational.mean_function.network.network.layers
    hidden = np.asarray(first(X.astype(np.float32)))
    assert_close(norm.moving_mean, 0.1 * hidden.mean(axis=0))


@pytest.mark.slow
def test_single_precision() -> None:
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        data = (X.astype(np.float32), Y.astype(np.float32))
        Z = catalogue.inducing_points(data[0][:M])
        k = kernel()
        Q = gvi.GaussianProcess(
            gvi.mean_functions.Inducing(k, Z), gvi.covariances.CholeskySVGP(k, Z)
        )
        P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
        model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.5), num_data=N)
        model.compile("sgd")
        model.optimizer.learning_rate = 0.0
        history = model.fit(data, batch_size=20, verbose=0, validation_data=data).history
        for name in ("loss", "val_loss"):
            expected = [float(model.training_loss(data))]
            assert_close(history[name], expected, precision=np.float32)
        assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}


# Killed and started again.

BATCHES = 5
"""In an epoch, of 12 rows at most."""


def train(folder: Path | None, kill_after: float = np.inf) -> tuple[list[np.ndarray], Any]:
    """Train a new model, or go on from what a backup in the folder says.

    :param kill_after: the number of steps after which the program is killed.
    """

    def kill(batch: int, logs: Any) -> None:
        if int(model.optimizer.iterations) >= kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    model = with_network()
    model.compile(keras.optimizers.Adam(0.02), steps_per_execution=2)
    callbacks = [keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=2.0)]
    if folder is not None:
        callbacks.append(keras.callbacks.BackupAndRestore(str(folder)))
    callbacks.append(keras.callbacks.LambdaCallback(on_train_batch_end=kill))
    history = model.fit((X, Y), batch_size=12, epochs=6, verbose=0, callbacks=callbacks)
    return model.get_weights(), history.history


KILLED = """
import json, os, pathlib, signal, sys
import numpy as np
from tests.integration.test_fit import train

folder, when, number = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
replace, calls = pathlib.Path.replace, []

def half(self, target):
    calls.append(target)
    if len(calls) == number:
        self.write_bytes(self.read_bytes()[:1000])
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

if when == "while writing":
    pathlib.Path.replace = half
weights, history = train(folder / "backup", number if when == "after" else np.inf)
np.savez(folder / "weights.npz", *weights)
(folder / "history.json").write_text(json.dumps(history))
"""


@pytest.mark.slow
def test_killed_training_ends_where_it_would_have(tmp_path: Path) -> None:
    def run(when: str, number: int = 0) -> int:
        command = [sys.executable, "-c", KILLED, str(tmp_path), when, str(number)]
        return subprocess.run(command, cwd=ROOT, check=False, timeout=300).returncode

    assert run("after", 2 * BATCHES + 3) == -signal.SIGKILL
    assert run("while writing", 2) == -signal.SIGKILL
    assert len(list((tmp_path / "backup").iterdir())) == 2  # the last one, and half of the next
    assert run("never") == 0
    weights, history = train(None)
    assert json.loads((tmp_path / "history.json").read_text()) == history
    with np.load(tmp_path / "weights.npz") as file:
        for name, expected in zip(file.files, weights, strict=True):
            np.testing.assert_array_equal(file[name], expected)

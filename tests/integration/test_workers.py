"""Several replicas of a model train it as one does: the same loss, and the same parameters."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from gpflow_gvi._core.errors import NonFiniteLossError
from gpflow_gvi.integrations.distributed import launch
from tests.tolerances import assert_close

from ..unit.training.test_fit import Line
from ..unit.training.test_fit import X as LX
from ..unit.training.test_fit import Y as LY
from . import test_fit as fit

ROOT = Path(__file__).parents[2]
N = len(fit.X)

WORKER = """
import os, sys
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
folder, kill = sys.argv[1:]

from tests.integration import test_workers

mine = f"{folder}/{strategy.cluster_resolver.task_id}"
test_workers.write(mine, ["resumed"], strategy, backup=f"{folder}/backup", kill=kill == "kill")
"""


def trained(
    model: Any, optimizer: Any, data: Any = (fit.X, fit.Y), **options: Any
) -> list[np.ndarray]:
    """Train a model on batches that two replicas cannot share evenly."""
    model.compile(optimizer)
    options = {"epochs": 2, "batch_size": 7, "verbose": 0, **options}
    history = model.fit(data, validation_data=tuple(p[:3] for p in data), **options).history
    return [*model.get_weights(), *(np.array(values) for values in history.values())]


def line() -> list[np.ndarray]:
    """Least squares, quick to trace; the last batch has one row, and one replica none."""
    return trained(Line(), keras.optimizers.SGD(0.005, clipnorm=1.0), data=(LX, LY), batch_size=3)


def keras_adam() -> list[np.ndarray]:
    return trained(fit.make(), keras.optimizers.Adam(0.05, clipnorm=0.5), batch_size=20)


def tf_keras_adam() -> list[np.ndarray]:
    optimizer = tf_keras.optimizers.Adam(0.05, global_clipnorm=1.0)
    return trained(fit.make("KernelisedSVGP", "Renyi(0.3)"), optimizer)


def moving_average() -> list[np.ndarray]:
    optimizer = keras.optimizers.AdamW(0.05, use_ema=True)
    return trained(fit.make("SparsePosterior", "SquaredDifference"), optimizer)


def inducing() -> list[np.ndarray]:
    return trained(fit.make(divergence="InducingKL"), "adam")


def streamed() -> list[np.ndarray]:
    """From a Dataset, whose length is not known."""
    model = Line()
    model.compile(keras.optimizers.SGD(0.005), steps_per_execution=3)
    data = tf.data.Dataset.from_tensor_slices((LX, LY)).filter(lambda x, y: True).batch(3)
    loss = model.fit(data, epochs=2, verbose=0).history["loss"]
    return [*model.get_weights(), np.array(loss)]


def not_finite() -> list[np.ndarray]:
    """A loss that is not finite at one replica changes nothing at any."""
    model = fit.make()
    model.compile(keras.optimizers.Adam(0.05))
    data = tf.data.Dataset.from_tensors((fit.X, np.r_[np.full((1, 1), np.nan), fit.Y[1:]]))
    with pytest.raises(NonFiniteLossError, match="not finite"):
        model.fit(data, verbose=0)
    return model.get_weights()


def refused() -> list[np.ndarray]:
    """What cannot be is told when the model is compiled; so only of replicas."""
    if not tf.distribute.has_strategy():
        return []
    with pytest.raises(ValueError, match=r"float32 and float64.*in_precision"):
        fit.with_network().compile("adam")
    with pytest.warns(match="GaussianWasserstein is not an average over the rows"):
        fit.make(divergence="GaussianWasserstein(marginal)").compile("adam")
    with pytest.raises(ValueError, match=r"of the model, .* was not made in the scope"):
        PLAIN.compile("adam")
    return []


PLAIN = fit.make()
"""A model that was made in no scope."""


def resumed(*, backup: str | None = None, kill: bool = False) -> list[np.ndarray]:
    callbacks = []
    if backup is not None:
        callbacks.append(keras.callbacks.BackupAndRestore(backup))

    class Kill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if kill and epoch == 3 and not Path(f"{backup}.killed").exists():
                Path(f"{backup}.killed").touch()
                os.kill(os.getpid(), 9)

    adam = keras.optimizers.Adam(0.05)
    return trained(fit.make(), adam, epochs=5, callbacks=[*callbacks, Kill()])


TRAININGS: dict[str, Callable[..., list[np.ndarray]]] = {
    function.__name__: function
    for function in (
        *(line, keras_adam, tf_keras_adam, moving_average, inducing),
        *(streamed, not_finite, refused, resumed),
    )
}


def write(folder: str, names: list[str], strategy: tf.distribute.Strategy, **options: Any) -> None:
    """What another process does: train in the scope of a strategy, and write what came out."""
    for name in names:
        with strategy.scope():
            values = TRAININGS[name](**options)
        Path(folder).mkdir(exist_ok=True)
        np.savez(f"{folder}/{name}.npz", *values)


def assert_same(folder: Path, names: list[str]) -> None:
    for name in names:
        with np.load(folder / f"{name}.npz") as file:
            theirs = [file[key] for key in file.files]
        for ours, other in zip(TRAININGS[name](), theirs, strict=True):
            assert_close(other, ours)


@functools.cache
def two_replicas() -> tf.distribute.Strategy:
    """Return the one strategy of this process: all-reduces of two would be taken for each other."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])  # which `conftest` has made


def test_mirrored_training_is_that_of_one_worker(tmp_path: Path) -> None:
    write(str(tmp_path), ["line"], two_replicas())
    assert_same(tmp_path, ["line"])


@pytest.mark.slow
def test_all_mirrored_trainings_are_those_of_one_worker(tmp_path: Path) -> None:
    names = [name for name in TRAININGS if name not in ("line", "resumed")]
    write(str(tmp_path), names, two_replicas())
    assert_same(tmp_path, names)


@pytest.mark.slow
@pytest.mark.parametrize("kill", ["kill", "spare"])
def test_workers_train_as_one_though_one_is_killed(kill: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{WORKER}")
    restarts = 1 if kill == "kill" else 0
    assert launch([str(program), str(tmp_path), kill], workers=2, restarts=restarts) == 0
    assert (tmp_path / "backup.killed").exists() == (kill == "kill")
    assert not (tmp_path / "backup").exists()
    for worker in ("0", "1"):
        assert_same(tmp_path / worker, ["resumed"])

"""A backup is there as a whole, and brings back all that the next epoch depends on."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi._core.network_function import as_function
from gpflow_gvi.training import Trainable
from gpflow_gvi.training.backup import Backup, read_arrays, write_arrays
from gpflow_gvi.training.guard import LossTerms

ARRAYS = {
    "a": [np.array([[1.0, np.inf], [np.nan, -0.0]]), *map(np.float32, range(11))],
    "b": [np.array([2**63], dtype=np.uint64)],
    "empty": [np.zeros((0, 3), dtype=np.int64)],
}


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "arrays.h5"
    write_arrays(path, ARRAYS)
    back = read_arrays(path)
    assert back.keys() == ARRAYS.keys()
    for name, arrays in ARRAYS.items():
        for found, array in zip(back[name], arrays, strict=True):
            np.testing.assert_array_equal(found, array)
            assert found.dtype == array.dtype


def test_old_file_stays_until_the_new_one_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may end at any of the calls that write."""
    path = tmp_path / "arrays.h5"
    write_arrays(path, {"a": [np.zeros(3)]})

    def end(*_: Any) -> None:
        raise SystemExit

    for where, name in ((os, "fsync"), (Path, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, end)
            with pytest.raises(SystemExit):
                write_arrays(path, {"a": [np.ones(3)]})
        np.testing.assert_array_equal(read_arrays(path)["a"], [[0.0] * 3])
    write_arrays(path, {"a": [np.ones(3)]})
    np.testing.assert_array_equal(read_arrays(path)["a"], [[1.0] * 3])
    assert list(tmp_path.iterdir()) == [path]


N = 10
_RNG = np.random.default_rng(14)
X = _RNG.normal(size=(N, 2))
Y = _RNG.normal(size=(N, 1))


class Random(tf.Module):
    """A network with a random generator, whose state is a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = tf.random.Generator.from_seed(3)
        self.state = self.generator.state

    def __call__(self, X: tf.Tensor, training: bool = False) -> tf.Tensor:
        return X + 0.3 * self.generator.normal(tf.shape(X), dtype=X.dtype) if training else X


class Line(Trainable):
    """Least squares of inputs with noise."""

    num_data = N
    _term_names = ("Squares", "Ridge")

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.array([[0.3], [-0.2]]))
        self.network = as_function(Random())

    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        loss = tf.reduce_mean((self.network(X) @ self.w - Y) ** 2)
        ridge = tf.reduce_sum(self.w**2)
        return loss + ridge, LossTerms(loss, ridge)


class Killed(Exception):  # noqa: N818
    """In the place of a signal."""


class Interrupt(keras.callbacks.Callback):
    def __init__(self, after: float) -> None:
        super().__init__()
        self.after = after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations) >= self.after:
            raise Killed


def train(folder: Path, after: float = np.inf, **options: Any) -> Any:
    model = Line()
    model.compile(keras.optimizers.Adam(0.02), steps_per_execution=2)
    C = keras.callbacks
    callbacks = [
        C.BackupAndRestore(str(folder), **options),
        C.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True),
        C.ReduceLROnPlateau(monitor="loss", patience=1, factor=0.3, cooldown=1, min_delta=0.5),
        Interrupt(after),
    ]
    history = model.fit((X, Y), batch_size=4, epochs=12, verbose=0, callbacks=callbacks)
    return history.history, history.epoch, [value.tolist() for value in model.get_weights()]


def test_interrupted_training_ends_where_it_would_have(tmp_path: Path) -> None:
    """Optimiser, learning rate, patience, best weights and random generator all go on."""
    history, epochs, _ = undisturbed = train(tmp_path / "other")
    rates = history["learning_rate"]
    assert rates[-1] < rates[0]
    assert 3 < len(epochs) < 12  # stopped early, at weights other than the last
    for steps in (2, 7, 10, 3 * len(epochs)):
        with pytest.raises(Killed):
            train(tmp_path / "backup", steps)
    assert train(tmp_path / "backup") == undisturbed
    assert list(tmp_path.iterdir()) == []


def test_kept_backup_says_that_there_is_nothing_left_to_do(tmp_path: Path) -> None:
    first = train(tmp_path, delete_checkpoint=False)
    assert [path.name for path in tmp_path.iterdir()] == ["training.h5"]
    assert train(tmp_path, 0, delete_checkpoint=False) == first


def test_backup_of_another_training_is_refused(tmp_path: Path) -> None:
    variables = [tf.Variable(np.zeros(2)), tf.Variable(1)]
    before = Backup(tmp_path, variables, [keras.callbacks.History()])
    before.set_model(SimpleNamespace(stop_training=False))
    before.on_epoch_end(0)
    with pytest.raises(ValueError, match=r"written with \['History'\].*delete the backup"):
        Backup(tmp_path, variables, []).on_train_begin()
    callbacks = [keras.callbacks.History()]
    with pytest.raises(ValueError, match=r"training.h5 has the values of 2 variables, .* are 1"):
        Backup(tmp_path, variables[:1], callbacks).on_train_begin()
    with pytest.raises(ValueError, match=r"shape \(2,\) for the variable .*shape is \(3,\)"):
        Backup(tmp_path, [tf.Variable(np.ones(3)), variables[1]], callbacks).on_train_begin()

"""compile and fit do what they say, to a model so small that NumPy can follow."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from gpflow_gvi._core.mode import is_training
from gpflow_gvi._core.network_function import as_function
from gpflow_gvi._core.notices import notice
from gpflow_gvi.errors import NonFiniteLossError, NumericsWarning
from gpflow_gvi.training import Trainable
from gpflow_gvi.training.guard import LossTerms
from tests.designs import each_pair
from tests.tolerances import assert_close

N = 10
_RNG = np.random.default_rng(4)
X = _RNG.normal(size=(N, 2))
Y = _RNG.normal(size=(N, 1))
RATE = N / 256
"""Divided by N it is exact in float32, in which Keras keeps it."""


class Line(Trainable):
    """Least squares, and half the squared weights in the place of a divergence."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.array([[0.3], [-0.2]]))
        self.num_data = N
        self._traces = 0
        self._trained = 0

    _term_names = ("Squares", "Ridge")

    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        self._traces += 1
        self._trained += is_training()
        loss = tf.reduce_mean((X @ self.w - Y) ** 2)
        ridge = 0.5 * tf.reduce_sum(self.w**2)
        return N * (loss + 0.1 * ridge), LossTerms(loss, ridge)


def compiled(model: Trainable | None = None, optimizer: Any = None, **options: Any) -> Any:
    model = Line() if model is None else model
    model.compile(keras.optimizers.SGD(RATE / N) if optimizer is None else optimizer, **options)
    return model


def by_numpy(batches: list[slice], w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient descent's weights and the terms, averaged over rows as the steps go on."""
    sums, rows = np.zeros(3), 0
    for batch in batches:
        x, y = X[batch], Y[batch]
        error = x @ w - y
        terms = np.array([np.mean(error**2), 0.5 * np.sum(w**2)])
        sums += len(x) * np.array([N * (terms[0] + 0.1 * terms[1]), *terms])
        rows += len(x)
        w = w - RATE * (2.0 * x.T @ error / len(x) + 0.1 * w)
    return w, sums / rows


def as_arrays(size: int) -> dict[str, Any]:
    return {"data": (X, Y), "batch_size": size, "shuffle": False}


def as_dataset(size: int) -> dict[str, Any]:
    return {"data": tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)}


def as_generator(size: int) -> dict[str, Any]:
    """A Dataset that does not know how long it is."""
    signature = (tf.TensorSpec([None, 2], tf.float64), tf.TensorSpec([None, 1], tf.float64))

    def batches() -> Any:
        for start in range(0, N, size):
            yield X[start : start + size], Y[start : start + size]

    return {"data": tf.data.Dataset.from_generator(batches, output_signature=signature)}


@pytest.mark.parametrize(
    ("data", "size"), each_pair([as_arrays, as_dataset, as_generator], [4, 5, 10, 64])
)
def test_steps_are_those_of_gradient_descent(
    data: Callable[[int], dict[str, Any]], size: int
) -> None:
    model = compiled(steps_per_execution=2)
    w = model.w.numpy()
    history = model.fit(**data(size), epochs=3, verbose=0).history
    for epoch in range(3):
        w, means = by_numpy([slice(i, i + size) for i in range(0, N, size)], w)
        for name, mean in zip(("loss", "expected_loss", "divergence"), means, strict=True):
            assert_close(history[name][epoch], mean)
    assert_close(model.w, w)


def test_batch_size_none_is_all_rows() -> None:
    model = compiled()
    w, _ = by_numpy([slice(None)], model.w.numpy())
    model.fit((X, Y), batch_size=None, verbose=0)
    assert_close(model.w, w)


def test_validation_is_the_loss_afterwards_out_of_training() -> None:
    model = compiled(steps_per_execution=2)
    history = model.fit((X, Y), verbose=0, batch_size=4, validation_data=(X[:7], Y[:7])).history
    w = model.w.numpy()
    loss = np.mean((X[:7] @ w - Y[:7]) ** 2)
    assert_close(history["val_expected_loss"], [loss])
    assert_close(history["val_divergence"], [0.5 * np.sum(w**2)])
    assert_close(history["val_loss"], [N * (loss + 0.05 * np.sum(w**2))])
    assert (model._trained, model._traces) == (1, 2)


class Visits(Trainable):
    """Counts under SGD(1) how often each row was seen, and in which step it was last."""

    num_data = N
    _term_names = ("A", "B")

    def __init__(self) -> None:
        super().__init__()
        self.counts = tf.Variable(np.zeros(N))
        self.step = tf.Variable(0, trainable=False)
        self.seen_in = tf.Variable(np.zeros(N, int), trainable=False)

    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        rows = tf.cast(X[:, 0], tf.int32)
        self.step.assign_add(1)
        seen = tf.tensor_scatter_nd_update(
            self.seen_in, rows[:, None], tf.repeat(tf.cast(self.step, tf.int64), tf.size(rows))
        )
        self.seen_in.assign(seen)
        total = -tf.reduce_sum(tf.gather(self.counts, rows))
        return total, LossTerms(total, total)


ROWS = (np.arange(N, dtype=float)[:, None], np.zeros((N, 1)))


def order_after(seed: int = 0, **options: Any) -> np.ndarray:
    model = compiled(Visits(), keras.optimizers.SGD(1.0))
    model.fit(ROWS, batch_size=3, verbose=0, seed=seed, **options)
    assert_close(np.sum(model.counts), N * options.get("epochs", 1))
    np.testing.assert_array_equal(model.counts, options.get("epochs", 1))
    return model.seen_in.numpy()


def test_each_epoch_visits_each_row_once_in_an_order_of_its_own() -> None:
    first = order_after()
    np.testing.assert_array_equal(np.bincount(first), [0, 3, 3, 3, 1])
    second = order_after(epochs=2) - 4
    assert np.any(first != second)
    assert np.any(first != order_after(seed=1))
    np.testing.assert_array_equal(first, order_after())
    np.testing.assert_array_equal(order_after(shuffle=False), np.arange(N) // 3 + 1)


def test_order_of_an_epoch_depends_on_its_number_alone() -> None:
    model = compiled(Visits(), keras.optimizers.SGD(1.0))
    model.fit(ROWS, batch_size=3, verbose=0, initial_epoch=1, epochs=2)
    np.testing.assert_array_equal(model.seen_in, order_after(epochs=2) - 4)


@pytest.mark.parametrize("steps_per_execution", [1, 3, 100])
def test_passes_follow_each_other_in_longer_epochs(steps_per_execution: int) -> None:
    """Three passes of four batches are as well three epochs or two of six batches."""
    model = compiled(Visits(), keras.optimizers.SGD(1.0), steps_per_execution=steps_per_execution)
    history = model.fit(ROWS, batch_size=3, verbose=0, steps_per_epoch=6, epochs=2)
    assert history.params["steps"] == 6
    assert int(model.step) == 12
    np.testing.assert_array_equal(model.counts, 3.0)
    np.testing.assert_array_equal(model.seen_in, order_after(epochs=3))


def test_endless_dataset_goes_on_from_epoch_to_epoch() -> None:
    model = compiled(Visits(), keras.optimizers.SGD(1.0))
    endless = tf.data.Dataset.from_tensor_slices(ROWS).batch(3).repeat()
    model.fit(endless, verbose=0, steps_per_epoch=2, epochs=3)
    np.testing.assert_array_equal(model.counts, np.where(np.arange(N) < 6, 2.0, 1.0))


@pytest.mark.parametrize("steps_per_epoch", [None, 3])
def test_dataset_gives_an_epoch_the_batches_of_its_number(steps_per_epoch: int | None) -> None:
    def seen(**options: Any) -> tuple[np.ndarray, np.ndarray]:
        model = compiled(Visits(), keras.optimizers.SGD(1.0))
        shuffled = tf.data.Dataset.from_tensor_slices(ROWS).shuffle(N, seed=5).batch(3)
        model.fit(shuffled, verbose=0, steps_per_epoch=steps_per_epoch, **options)
        return model.counts.numpy(), model.seen_in.numpy() - int(model.step)

    counts, when = seen(initial_epoch=2, epochs=3)
    counts_before, _ = seen(epochs=2)
    counts_all, when_all = seen(epochs=3)
    np.testing.assert_array_equal(counts_before + counts, counts_all)
    np.testing.assert_array_equal(when[counts > 0], when_all[counts > 0])


# One trace.


def test_traced_once_whatever_the_length() -> None:
    model = compiled()
    model.fit((X, Y), batch_size=4, epochs=3, verbose=0)
    model.fit((X, Y), batch_size=4, epochs=2, verbose=0)
    model.fit((X, Y), batch_size=3, shuffle=False, verbose=0)
    assert model._traces == 1
    model.fit(**as_generator(3), verbose=0)
    model.fit(**as_generator(4), verbose=0)
    assert model._traces == 2  # where nothing is known of the rows beforehand
    model.compile("adam")
    model.fit((X, Y), batch_size=4, verbose=0)
    assert model._traces == 3


def test_other_part_of_the_model_is_traced_anew() -> None:
    model = compiled()
    model.fit((X, Y), batch_size=4, verbose=0)
    model.w = tf.Variable(np.zeros((2, 1)))
    with pytest.raises(ValueError, match=r"other variables are trainable now.*Call compile"):
        model.fit((X, Y), batch_size=4, verbose=0)
    model.num_data = N
    model.scale = 3.0
    model = compiled(model)
    model.fit((X, Y), batch_size=4, verbose=0)
    before = model._traces
    model.scale = 4.0
    model.fit((X, Y), batch_size=4, verbose=0)
    assert model._traces == before + 1


def test_learning_rate_may_change_between_epochs() -> None:
    model = compiled()
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.0 if epoch else RATE / N)
    after = []
    tell = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: after.append(model.w.numpy()))
    history = model.fit((X, Y), epochs=3, verbose=0, callbacks=[schedule, tell]).history
    assert np.any(after[0] != [[0.3], [-0.2]])
    np.testing.assert_array_equal(after[2], after[0])
    assert history["learning_rate"] == [RATE / N, 0.0, 0.0]
    assert model._traces == 1


# What is not finite.


class Counter(tf.Module):
    """A network that counts its evaluations in training, as batch normalisation does means."""

    def __init__(self) -> None:
        super().__init__()
        self.count = tf.Variable(0, trainable=False)

    def __call__(self, X: tf.Tensor, training: bool = False) -> tf.Tensor:
        self.count.assign_add(int(training))
        return 0.0 * X


@tf.custom_gradient
def steep(position: tf.Tensor) -> Any:
    """The position, with a slope that is NaN from 3 on."""
    nan = tf.constant(np.nan, position.dtype)
    return tf.identity(position), lambda upstream: tf.where(position >= 3.0, nan, upstream)


class Cliff(Trainable):
    """Goes down in steps to where its loss, its gradient, or a term is not finite."""

    num_data = N

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.position = gpflow.Parameter(np.array(0.0))
        self.other = tf.Variable(np.array(1.0))
        self.network = as_function(Counter())

    _term_names = ("Loss", "Divergence")

    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        position = tf.convert_to_tensor(self.position)
        if self.what == "gradient":
            position = steep(position)
        value = -position + 0.0 * self.other + tf.reduce_sum(self.network(X))
        bad = tf.where(value <= -3.0, tf.constant(np.nan, value.dtype), 0.0)
        loss = value + bad if self.what == "loss" else value
        divergence = value + bad if self.what == "divergence" else value
        return loss + divergence - value, LossTerms(loss, divergence)


WORDS = {
    "loss": r"not finite: the loss \(Loss\) is nan\. The parameters are those before",
    "divergence": r"not finite: the divergence \(Divergence\) is nan\. The parameters",
    "gradient": r"gradient of the training loss is not finite with respect to position, though",
}


@pytest.mark.parametrize("what", WORDS)
def test_step_that_is_not_finite_changes_nothing(what: str) -> None:
    optimizer = keras.optimizers.SGD(1.0, momentum=0.5)
    model = compiled(Cliff(what), optimizer)
    with pytest.raises(NonFiniteLossError, match=WORDS[what]):
        model.fit((X, Y), epochs=1, steps_per_epoch=50, verbose=0)
    # Steps of 1, 1.5 and 1.75; the fourth is not done.
    assert float(model.position.numpy()) == 4.25
    assert int(optimizer.iterations) == int(model.network.network.count) == 3
    assert any(np.all(variable.numpy() == 1.75) for variable in optimizer.variables)
    with pytest.raises(NonFiniteLossError, match=WORDS[what]):  # training can be tried again
        model.fit((X, Y), verbose=0)
    assert int(optimizer.iterations) == int(model.network.network.count) == 3


def test_validation_loss_that_is_not_finite_is_reported() -> None:
    model = compiled(Cliff("loss"), keras.optimizers.SGD(4.0))
    with pytest.warns(NumericsWarning, match="loss and expected_loss is not finite"):
        history = model.fit((X, Y), verbose=0, validation_data=(X, Y)).history
    assert np.isnan(history["val_loss"]).all()


class Noisy(Line):
    """Has something to tell in three of four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.step = tf.Variable(0.0, trainable=False)

    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        notice("{} of these", self.step.assign_add(1.0) % 4.0)
        return super()._objective(X, Y)


def test_notices_are_logged_once_in_a_fit(caplog: pytest.LogCaptureFixture) -> None:
    model = compiled(Noisy(), steps_per_execution=8)
    for times in (1, 2):
        model.fit((X, Y), steps_per_epoch=40, verbose=0)
        assert [record.getMessage() for record in caplog.records] == ["3 of these"] * times


# A compiled model is a model as before.


def test_copies_checkpoints_and_listings_ignore_what_was_compiled(tmp_path: Any) -> None:
    plain, model = Line(), compiled(optimizer="adam")
    model.fit((X, Y), verbose=0)
    assert [v.name for v in model.variables] == [v.name for v in plain.variables]
    listed = gpflow.utilities.parameter_dict(model)
    assert listed.keys() == gpflow.utilities.parameter_dict(plain).keys() == {".w"}
    for duplicate in (gpflow.utilities.deepcopy(model), copy.deepcopy(model)):
        np.testing.assert_array_equal(duplicate.w, model.w)
        with pytest.raises(RuntimeError, match="Call compile"):
            duplicate.fit((X, Y))
        compiled(duplicate).fit((X, Y), verbose=0)
        assert np.all(duplicate.w.numpy() != model.w.numpy())
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=plain).restore(path).assert_consumed()
    np.testing.assert_array_equal(plain.w, model.w)


def test_weights_go_to_a_file_and_back(tmp_path: Any) -> None:
    model, other = compiled(), Line()
    model.fit((X, Y), verbose=0)
    path = tmp_path / "new" / "line.weights.h5"
    model.save_weights(path)
    other.load_weights(path)
    np.testing.assert_array_equal(other.w, model.w)
    assert [part.name for part in path.parent.iterdir()] == [path.name]
    with pytest.raises(FileExistsError, match=r"line.weights.h5.*overwrite"):
        model.save_weights(path, overwrite=False)
    with pytest.raises(ValueError, match=r"line.weights.h5 has the values of 1 .* there are 3"):
        Visits().load_weights(path)
    with pytest.raises(ValueError, match=r"weights has a value of shape \(3,\) .* is \(2, 1\)"):
        model.set_weights([np.zeros(3)])
    np.testing.assert_array_equal(other.w, model.w)


# Bad input.

BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "batch_size": ({"batch_size": 0}, ValueError, "batch_size is 0; .*at least 1"),
    "steps": ({"steps_per_epoch": 2.5}, ValueError, "steps_per_epoch is 2.5; "),
    "epochs": ({"epochs": -1}, ValueError, "epochs is -1; "),
    "initial": ({"initial_epoch": -2}, ValueError, "initial_epoch is -2; "),
    "seed": ({"seed": None}, ValueError, "seed is None; "),
    "rows": ({"data": (X, Y[:4])}, ValueError, "data's X has 10 rows and data's Y has 4"),
    "large numbers": (
        {"data": (np.full((N, 2), 2**60 + 1), Y)},
        TypeError,
        "data's X has dtype int64 and whole numbers that are too large for the model's float64",
    ),
    "validation": (
        {"validation_data": (X[:0], Y[:0])},
        ValueError,
        "validation_data's X has shape .*no data points",
    ),
    "endless": (
        {"data": tf.data.Dataset.from_tensors((X, Y)).repeat()},
        ValueError,
        "data is a Dataset without an end. Pass steps_per_epoch",
    ),
    "empty": (
        {"data": tf.data.Dataset.from_tensors((X, Y)).take(0)},
        ValueError,
        "data is a Dataset without any batches",
    ),
    "empty after all": (
        {"data": tf.data.Dataset.from_tensors((X, Y)).filter(lambda *_: False)},
        ValueError,
        "data is a Dataset without any batches",
    ),
    "not pairs": (
        {"data": tf.data.Dataset.from_tensors(X)},
        ValueError,
        r"data is a Dataset with the elements .*a batch \(X, Y\)",
    ),
    "not batched": (
        {"data": tf.data.Dataset.from_tensor_slices((X, Y))},
        ValueError,
        r"X of data has shape \(2,\) in each element.*\.batch\(batch_size\)",
    ),
    "dtype of elements": (
        {"data": tf.data.Dataset.from_tensors((X, Y.astype(str)))},
        TypeError,
        "Y of data has dtype string; .*real numbers",
    ),
    "callback": ({"callbacks": [print]}, TypeError, "callbacks has <built-in function print>"),
    "whole model": (
        {"callbacks": [keras.callbacks.ModelCheckpoint("model.keras")]},
        ValueError,
        "ModelCheckpoint with save_weights_only=False.*save_weights_only=True",
    ),
    "histograms": (
        {"callbacks": [keras.callbacks.TensorBoard(histogram_freq=2)]},
        ValueError,
        "TensorBoard with histogram_freq=2; it must be 0",
    ),
    "backup": (
        {"callbacks": keras.callbacks.BackupAndRestore("folder", save_freq=7)},
        ValueError,
        "BackupAndRestore with save_freq=7; it must be 'epoch'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_of_fit(name: str) -> None:
    options, kind, words = BAD[name]
    with pytest.raises(kind, match=f"(?s){words}"):
        compiled().fit(**{"data": (X, Y), "verbose": 0, **options})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("validation_split", r"pass validation_data=\(X, Y\)"),
        ("sample_weight", r"learn\(data, sample_weight"),
        ("epoch", r"help\(model.fit\)"),
    ],
)
def test_arguments_that_fit_lacks_are_refused_with_what_to_do(name: str, words: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is 0.1, but fit takes no .*{words}"):
        compiled().fit(X, Y, **{name: 0.1})


def test_bad_input_of_compile() -> None:
    with pytest.raises(RuntimeError, match=r"this Line has no optimiser yet. Call compile"):
        Line().fit((X, Y))
    with pytest.raises(TypeError, match=r"(?s)optimizer is .*Scipy.*training_loss_closure"):
        Line().compile(gpflow.optimizers.Scipy())
    with pytest.raises(TypeError, match=r"(?s)optimizer is .*tf_keras.*training_loss_closure"):
        Line().compile(tf_keras.optimizers.SGD())
    with pytest.raises(ValueError, match="steps_per_execution is 0"):
        Line().compile("adam", steps_per_execution=0)
    with pytest.raises(ValueError, match=re.escape("adom")):
        Line().compile("adom")


REPLICATED = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from tests.unit.training.test_fit import Line
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = Line()
model.compile("adam")
"""


@pytest.mark.slow
def test_model_of_several_replicas_is_refused() -> None:
    """In another process, as logical devices are chosen before anything else is done."""
    ended = subprocess.run(
        [sys.executable, "-c", REPLICATED], capture_output=True, text=True, check=False
    )
    assert "in the scope of a MirroredStrategy of 2 replicas, but it is trained" in ended.stderr


def test_other_number_of_data_is_warned_of() -> None:
    with pytest.warns(NumericsWarning, match="data has 4 rows, but the model has num_data=10"):
        compiled().fit((X[:4], Y[:4]), verbose=0)

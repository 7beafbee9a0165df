"""A model is fitted, evaluated and asked for predictions as a model of Keras is."""

from __future__ import annotations

from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sklearn_metrics

import gpflow_gvi as gvi
from tests.tolerances import ROUNDING, assert_close

N, M = 30, 4
_RNG = np.random.default_rng(12)
X = _RNG.uniform(-2.0, 2.0, size=(N, 2))
Y = np.sin(X[:, :1]) + 0.1 * _RNG.normal(size=(N, 1))
LABELS = (X[:, 0] > 0.0).astype(int) + (X[:, 1] > 0.5)


def make(
    optimizer: Any = None, likelihood: Any = None, num_data: int = N, **compiled: Any
) -> gvi.models.PGVI:
    likelihood = gpflow.likelihoods.Gaussian(0.3) if likelihood is None else likelihood
    J = likelihood.latent_dim or 1
    k = gpflow.kernels.SquaredExponential()
    P = gvi.GaussianProcess(gpflow.functions.Zero(J), k)
    r = gvi.covariances.CholeskySVGP(k, X[:M], num_latent_gps=J)
    Q = gvi.GaussianProcess(gvi.mean_functions.Inducing(k, X[:M], num_latent_gps=J), r)
    model = gvi.models.PGVI(P, Q, likelihood, num_data=num_data)
    model.compile(keras.optimizers.Adam(0.02) if optimizer is None else optimizer, **compiled)
    return model


@pytest.fixture(scope="module", name="traced")
def _traced() -> tuple[gvi.models.PGVI, list[Any]]:
    """A model with metrics, whose graphs the tests share, and the weights that it starts with."""
    metrics = [keras.metrics.RootMeanSquaredError(name="rmse"), "mae", keras.metrics.R2Score()]
    model = make(keras.optimizers.SGD(1e-3), metrics=metrics)
    return model, model.get_weights()


@pytest.fixture(name="measured")
def _measured(traced: tuple[gvi.models.PGVI, list[Any]]) -> gvi.models.PGVI:
    model, start = traced
    model.set_weights(start)
    return model


def assert_same_training(one: Any, other: Any) -> None:
    """Of arrays, what no step changes is computed at all rows at once, in other sums."""
    for name, values in one.history.items():
        assert_close(values, other.history[name])


def test_data_come_in_any_of_keras_forms() -> None:
    model = make(keras.optimizers.SGD(1e-3))  # without a state of its own
    start = model.get_weights()

    def fitted(*data: Any) -> Any:
        model.set_weights(start)
        return model.fit(*data, epochs=2, batch_size=8, shuffle=False, verbose=0)

    rounded = X.astype(np.float32).astype(float)
    expected = fitted((rounded, Y))
    assert_same_training(fitted(rounded, Y), expected)
    assert_same_training(fitted(X.astype(np.float32), Y[:, 0]), expected)
    slices = tf.data.Dataset.from_tensor_slices
    assert_same_training(fitted(slices((X.astype(np.float32), Y)).batch(8)), expected)
    assert_same_training(fitted(slices((rounded, Y[:, 0])).batch(8)), expected)


@pytest.mark.slow
def test_validation_every_other_epoch(measured: gvi.models.PGVI) -> None:
    history = measured.fit(X, Y, validation_data=(X, Y), validation_freq=2, epochs=4, verbose=0)
    assert len(history.history["val_loss"]) == 2
    assert len(history.history["loss"]) == 4


@pytest.mark.slow
def test_evaluate_returns_the_loss_its_terms_and_the_metrics(measured: gvi.models.PGVI) -> None:
    model = measured
    model.fit(X, Y, verbose=0)
    before = model.get_weights()
    logs = model.evaluate(X, Y, batch_size=7, verbose=0, return_dict=True)
    # Keras 3.12, the last one for Python 3.10, has metrics in alphabetical order.
    assert list(logs)[:3] == ["loss", "expected_loss", "divergence"]
    assert set(list(logs)[3:]) == {"rmse", "mae", "r2_score"}
    assert model.evaluate((X, Y), batch_size=7, verbose=0) == list(logs.values())
    assert_close(logs["loss"], float(model.training_loss((X, Y))))
    terms = model.loss_terms((X, Y))
    assert_close(logs["expected_loss"], float(terms.loss))
    assert_close(logs["divergence"], float(terms.divergence))
    for value, expected in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"loss": "mse"}, "loss is 'mse', but compile takes no .* The model has one"),
        ({"run_eagerly": True}, r"help\(model.compile\) lists"),
    ],
)
def test_what_compile_of_keras_takes_and_this_does_not_is_refused(
    option: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        make(**option)


def test_evaluate_shows_a_bar_by_default(measured: gvi.models.PGVI, capsys: Any) -> None:
    expected = measured.evaluate(X, Y, verbose=0)
    assert "loss" not in capsys.readouterr().out
    assert measured.evaluate(X, Y) == expected
    assert "loss" in capsys.readouterr().out


def test_metrics_are_those_of_the_predictions(measured: gvi.models.PGVI) -> None:
    """Of all rows, however many there are in a batch; against NumPy and scikit-learn."""
    history = measured.fit(
        X, Y, validation_data=(X[:11], Y[:11]), batch_size=8, epochs=2, verbose=0
    ).history
    error = measured.predict_y(X[:11])[0].numpy() - Y[:11]
    expected = {
        "val_rmse": np.sqrt(np.mean(error**2)),
        "val_mae": np.mean(np.abs(error)),
        "val_r2_score": sklearn_metrics.r2_score(Y[:11], error + Y[:11]),
    }
    for name, value in expected.items():  # metrics of Keras are in float32
        assert_close(history[name][-1], value, precision=np.float32)
    assert history["rmse"][1] < history["rmse"][0]


def test_metrics_of_training_are_those_before_each_step(measured: gvi.models.PGVI) -> None:
    expected = np.sqrt(np.mean((measured.predict_y(X)[0] - Y) ** 2))
    history = measured.fit(X, Y, batch_size=None, verbose=0).history
    assert_close(history["rmse"], [expected], precision=np.float32)


@pytest.mark.parametrize(
    "likelihood",
    [
        gpflow.likelihoods.MultiClass(3),
        pytest.param(gpflow.likelihoods.Softmax(3), marks=pytest.mark.slow),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_metrics_of_classes_are_those_of_their_probabilities(likelihood: Any) -> None:
    model = make(likelihood=likelihood, metrics=["accuracy"])
    model.variational.mean_function.q_mu.assign(3.0 * np.eye(3)[LABELS[:M]])
    likelihood.num_monte_carlo_points = 10_000  # of Softmax
    probabilities = model.predict(X, verbose=0)
    assert probabilities.shape == (N, 3)
    *_, second, first = np.sort(probabilities, axis=1).T
    in_doubt = np.mean(first - second < 0.05)  # where samples differ, so may the class
    score = sklearn_metrics.accuracy_score(LABELS, probabilities.argmax(axis=1))
    *_, accuracy = model.evaluate(X, LABELS, verbose=0)
    assert score > 0.5
    assert abs(accuracy - score) <= in_doubt + ROUNDING.float32


@pytest.mark.slow
def test_metrics_of_two_classes() -> None:
    model = make(
        likelihood=gpflow.likelihoods.Bernoulli(), metrics=["accuracy", keras.metrics.AUC()]
    )
    labels = LABELS > 0
    history = model.fit(X, labels, epochs=2, batch_size=10, verbose=0, validation_data=(X, labels))
    score = sklearn_metrics.accuracy_score(labels, model.predict(X, verbose=0) > 0.5)
    assert_close(history.history["val_accuracy"][-1], score, precision=np.float32)
    assert 0.5 < history.history["val_auc"][-1] <= 1.0


def test_metrics_stop_training_early(measured: gvi.models.PGVI) -> None:
    stop = keras.callbacks.EarlyStopping("val_rmse", patience=1, mode="max")
    history = measured.fit(X, Y, validation_data=(X, Y), epochs=30, callbacks=stop, verbose=0)
    assert len(history.epoch) < 30


def test_a_callback_stops_the_training_of_the_model_itself(measured: gvi.models.PGVI) -> None:
    """As it stops one of Keras, for one fit: a callback by functions is not given the model."""

    def third_is_the_last(epoch: int, logs: object) -> None:
        measured.stop_training = epoch == 2

    stop = keras.callbacks.LambdaCallback(on_epoch_end=third_is_the_last)
    assert measured.fit(X, Y, epochs=5, callbacks=stop, verbose=0).epoch == [0, 1, 2]
    assert measured.stop_training
    assert measured.fit(X, Y, epochs=2, verbose=0).epoch == [0, 1]
    assert not measured.stop_training


@pytest.mark.slow
def test_predictions_in_batches_of_any_size(capsys: pytest.CaptureFixture[str]) -> None:
    model = make()
    mean = model.predict_y(X)[0].numpy()
    predicted = model.predict(X, verbose=0)
    assert capsys.readouterr().out == ""
    for found in (predicted, model.predict(X, batch_size=7)):
        assert isinstance(found, np.ndarray)
        assert_close(found, mean)
    assert "5/5" in capsys.readouterr().out
    for batches in (X, (X, Y)):
        dataset = tf.data.Dataset.from_tensor_slices(batches).batch(7)
        assert_close(model.predict(dataset, verbose=0), mean)
    rounded = X.astype(np.float32)
    np.testing.assert_array_equal(
        model.predict(rounded, verbose=0), model.predict(rounded.astype(float), verbose=0)
    )


def test_a_call_is_the_mean_of_f_with_gradients() -> None:
    model = make()
    at = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(at)
        mean = model(at)
    np.testing.assert_array_equal(mean, model.predict_f(X)[0])
    assert tape.gradient(mean, at).shape == X.shape


def test_summary_lists_all_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    model, lines = make(), []
    model.summary()
    model.summary(print_fn=lines.append)
    printed = capsys.readouterr().out
    for name in gpflow.utilities.parameter_dict(model):
        assert name.removeprefix(".") in lines[0]
        assert name.removeprefix(".") in printed


def test_tables_call_trainable_what_is_trained() -> None:
    """P is frozen here and trainable elsewhere, which GPflow's own table shows."""
    model, tables = make(), []
    for fmt in ("tsv", "html"):
        model.summary(fmt, print_fn=tables.append)
    header, *rows = [[cell.strip() for cell in row.split("\t")] for row in tables[0].splitlines()]
    name, flag = header.index("name"), header.index("trainable")
    shown = {row[name].removeprefix("PGVI"): row[flag] for row in rows}
    assert shown[".kernel.lengthscales"] == "False"
    variables = {id(variable) for variable in model.trainable_variables}
    assert shown == {
        path: str(id(parameter.unconstrained_variable) in variables)
        for path, parameter in gpflow.utilities.parameter_dict(model).items()
    }
    assert tables[1] in model._repr_html_()
    assert all(parameter.trainable for parameter in model.kernel.parameters)


def test_optimizer_is_the_one_that_was_given() -> None:
    model = make()
    adam = keras.optimizers.Adam(0.5)
    model.compile(adam)
    assert model.optimizer is adam
    assert gpflow.utilities.deepcopy(model).optimizer is None


def test_callbacks_see_exact_numbers_of_batches(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, Any]] = []
    tell = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append((batch, sorted(logs)))
    )
    model = make(steps_per_execution=3)
    model.fit(X, Y, batch_size=4, callbacks=[tell])
    names = ["divergence", "expected_loss", "loss"]
    assert seen == [(2, names), (5, names), (7, names)]
    assert "8/8" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X, Y[:, :, None]), r"data's Y has shape \(30, 1, 1\)"),
        ((X[:, :0], Y), r"data's X has shape \(30, 0\): there are no columns"),
        ((X[:, :1], Y), r"X has shape \(.*1\), but one input has 2 columns"),
        ((np.ma.MaskedArray(X, mask=X > 1.0), Y), "data's X is masked"),
    ],
)
def test_data_of_other_shapes_than_the_model_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make().fit(*given, verbose=0)

"""What is computed once a fit leaves the loss and its gradient as they are, and is never stale."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.training import fit_constants
from gpflow_gvi.training.fit_constants import Constants
from tests import networks

N, M = 60, 7
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = np.sin(X[:, :1]) + 0.1 * RNG.normal(size=(N, 1))

COVARIANCES = [
    gvi.covariances.CholeskySVGP,
    gvi.covariances.DiagonalSVGP,
    gvi.covariances.KernelisedSVGP,
    gvi.covariances.SparsePosterior,
    gvi.covariances.FixedSparsePosterior,
]


def prior(lengthscale: float = 1.3) -> gvi.GaussianProcess:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=[lengthscale, 0.8])
    return gvi.GaussianProcess(gpflow.functions.Constant(0.3), kernel)


def network() -> gvi.mean_functions.Network:
    keras.utils.set_random_seed(0)
    return gvi.mean_functions.Network(networks.dense(keras))


class Counted(gpflow.kernels.SquaredExponential):
    """A kernel that counts how often it is evaluated between points and rows."""

    count = 0

    def K(self, X, X2=None):
        found = super().K(X, X2)
        if X2 is None:
            return found

        def counted(value):
            self.count += 1
            return value

        return tf.ensure_shape(tf.numpy_function(counted, [found], found.dtype), found.shape)


def on_prior(
    covariance: type, *, moving: bool = False, lengthscale: float = 1.3, kernel=None
) -> gvi.models.PGVI:
    """P is a prior, and the points of Q are fixed or move."""
    P = prior(lengthscale) if kernel is None else gvi.GaussianProcess(prior().mean_function, kernel)
    points = gpflow.inducing_variables.InducingPoints(X[:M] + 0.05)
    gpflow.set_trainable(points, moving)
    Q = gvi.GaussianProcess(network(), covariance(P.kernel, points))
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.1), num_data=N)


def on_posterior(observed: int = M) -> gvi.models.PGVI:
    """P is conditioned on observations, and Q is a copy of it with a network added."""
    P = prior().condition(X[:observed], Y[:observed], 0.1)
    mean = gvi.mean_functions.Inducing(P.kernel, X[:M] + 0.05, mean_function=P.mean_function)
    covariance = gvi.covariances.CholeskySVGP(P.kernel, X[:M] + 0.05)
    Q = gvi.GaussianProcess(mean + network(), covariance)
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.1), num_data=N)


def loss_and_gradient(model: gvi.models.GVI, rows, constants: Constants | None):
    variables = model.trainable_variables

    @tf.function(autograph=False)
    def run(X, Y, numbers):
        with tf.GradientTape() as tape:
            if constants is None:
                loss = model.training_loss((X, Y))
            else:
                with constants.at(X, numbers):
                    loss = model.training_loss((X, Y))
        return loss, tape.gradient(loss, variables, unconnected_gradients="zero")

    loss, gradient = run(tf.constant(X[rows]), tf.constant(Y[rows]), tf.constant(rows))
    return loss.numpy(), [part.numpy() for part in gradient]


def require_equal(model: gvi.models.GVI, constants: Constants) -> None:
    for rows in (np.arange(20), np.array([41, 3, 17, 3])):
        loss, gradient = loss_and_gradient(model, rows, None)
        found, of_found = loss_and_gradient(model, rows, constants)
        np.testing.assert_allclose(found, loss, rtol=1e-10)
        for ours, expected in zip(of_found, gradient, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-8 * np.abs(loss))


@pytest.mark.slow
@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_loss_and_gradient_are_the_same(covariance, moving):
    model = on_prior(covariance, moving=moving)
    constants = Constants(model.trainable_variables)
    constants.begin(tf.constant(X), tf.constant(Y))
    require_equal(model, constants)
    assert constants.are_at_rows


@pytest.mark.slow
def test_loss_and_gradient_are_the_same_around_a_posterior():
    model = on_posterior()
    constants = Constants(model.trainable_variables)
    constants.begin(tf.constant(X), tf.constant(Y))
    require_equal(model, constants)
    model.kernel.observations.kernel.lengthscales.assign([0.6, 2.0])
    constants.refresh()
    require_equal(model, constants)


def fitted(model: gvi.models.GVI, data=(X, Y), **options) -> list[float]:
    if model.optimizer is None:
        model.compile(keras.optimizers.SGD(1e-4), steps_per_execution=2)
    options = {"batch_size": 16, "epochs": 2, "verbose": 0, "shuffle": False} | options
    return model.fit(data, **options).history["loss"]


@pytest.mark.parametrize("batch_size", [16, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("covariance", COVARIANCES[:2])
def test_a_fit_of_arrays_is_that_of_a_stream(covariance, batch_size):
    stream = tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size or N)
    np.testing.assert_allclose(
        fitted(on_prior(covariance), batch_size=batch_size),
        fitted(on_prior(covariance), stream),
        rtol=1e-9,
    )


@pytest.mark.slow
def test_arrays_after_a_stream_and_after_other_arrays():
    model, alone = on_prior(COVARIANCES[0]), on_prior(COVARIANCES[0])
    stream = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    for each, data in ((model, stream), (alone, (X, Y))):
        fitted(each, data)
    few = (X[::-1][:50], Y[::-1][:50])
    with pytest.warns(UserWarning, match="num_data"):
        np.testing.assert_allclose(fitted(model, few), fitted(alone, few), rtol=1e-9)
    np.testing.assert_allclose(
        fitted(model, batch_size=None), fitted(alone, stream.unbatch().batch(N)), rtol=1e-9
    )


@pytest.mark.slow
def test_p_may_change_between_fits():
    model, other = (
        on_prior(gvi.covariances.DiagonalSVGP),
        on_prior(gvi.covariances.DiagonalSVGP, lengthscale=0.7),
    )
    fitted(model)
    model.kernel.lengthscales.assign([0.7, 0.8])
    other.set_weights(model.get_weights())
    np.testing.assert_allclose(fitted(model), fitted(other), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [16, None])
def test_a_callback_may_change_p(batch_size):
    model = on_prior(gvi.covariances.DiagonalSVGP)
    model.compile(keras.optimizers.SGD(0.0))

    def change(epoch, logs):
        model.kernel.lengthscales.assign([0.5, 0.5])

    callback = keras.callbacks.LambdaCallback(on_epoch_end=change)
    first, second = fitted(model, callbacks=[callback], batch_size=batch_size)
    np.testing.assert_allclose(second, fitted(model)[0], rtol=1e-9)
    np.testing.assert_allclose(second, model.training_loss((X, Y)), rtol=1e-9)
    assert abs(first - second) > 1e-3 * abs(first)


@pytest.mark.slow
def test_validation_has_its_own_rows():
    model = on_posterior()
    model.compile(keras.optimizers.SGD(0.0))
    held_out = (X[:25] + 0.3, Y[:25])
    history = model.fit((X, Y), epochs=2, verbose=0, validation_data=held_out).history
    np.testing.assert_allclose(history["val_loss"], model.training_loss(held_out), rtol=1e-9)
    np.testing.assert_allclose(history["loss"], model.training_loss((X, Y)), rtol=1e-9)


def test_batch_normalisation_of_q_is_no_constant():
    net = networks.regularised(keras)
    P = prior()
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Network(net), gvi.covariances.CholeskySVGP(P.kernel, X[:M])
    )
    model = gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.1), num_data=N)
    before = net.layers[1].moving_mean.numpy().copy()
    fitted(model)
    assert np.abs(net.layers[1].moving_mean.numpy() - before).max() > 0.0


def test_values_at_rows_are_not_kept_after_a_fit():
    model = on_prior(COVARIANCES[0])
    fitted(model, batch_size=None)
    constants = model._compiled.trainer.constants["train"]  # a user sees memory alone
    sizes = [tf.size(each.value) for each in constants._found if each.is_at_rows]
    assert sizes
    assert not any(sizes)


@pytest.mark.slow
def test_features_at_inducing_points_are_computed_once_for_rows_that_are_not_too_many(monkeypatch):
    """L⁻¹K_ZX is wider than the data, and as often evaluated for many steps as for few."""
    stream = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    model, alone = (on_prior(gvi.covariances.CholeskySVGP, kernel=Counted()) for _ in range(2))
    np.testing.assert_allclose(fitted(model), fitted(alone, stream), rtol=1e-9)
    first = model.kernel.count
    np.testing.assert_allclose(fitted(model, epochs=9), fitted(alone, stream, epochs=9), rtol=1e-9)
    assert model.kernel.count - first <= first
    monkeypatch.setattr(fit_constants, "MAX_NUMBERS", N)
    np.testing.assert_allclose(fitted(model), fitted(alone, stream), rtol=1e-9)
    assert model.kernel.count - first > 2 * first


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.hstack([X, X]), X[:, :1], X[:, None]])
def test_rows_of_other_columns_are_refused(bad):
    """In the graph of the first rows, and not by an error of TensorFlow from within it."""
    model = on_posterior()
    model.compile(keras.optimizers.SGD(0.0))
    expected = model.evaluate((X, Y), verbose=0)
    with pytest.raises(ValueError, match="X has shape"):
        model.evaluate((bad, Y), verbose=0)
    np.testing.assert_array_equal(model.evaluate((X, Y), verbose=0), expected)

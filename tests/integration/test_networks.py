"""A part of another Keras model is a network as any other, wherever a model has or copies it."""

from __future__ import annotations

import pickle

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi.kernels import FeatureMap
from tests import networks
from tests.tolerances import assert_close, assert_differ

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(20, 2)), RNG.normal(size=(5, 2))
Y = np.sin(X[:, :1])


def on_hidden_layers():
    """Q has kernel and mean of networks, each a part of a model, and a copy of P's kernel."""
    kernel = FeatureMap(gpflow.kernels.SquaredExponential(), networks.hidden_layer(keras))
    r = gvi.covariances.KernelisedSVGP(kernel, X[:4])
    mean = gvi.mean_functions.Network(
        keras.Sequential([networks.hidden_layer(keras), keras.layers.Dense(1, dtype="float64")])
    )
    return gvi.models.GWI(
        gvi.GaussianProcess(gpflow.functions.Zero(), kernel),
        gvi.GaussianProcess(mean, r),
        gpflow.likelihoods.Gaussian(0.1),
        num_data=len(X),
    )


def predictions(model):
    return np.concatenate([np.asarray(part) for part in model.predict_f(NEW)])


def by_saving(model, folder):
    gvi.save(model, folder / "saved")
    return gvi.load(folder / "saved")


COPIES = {
    "gpflow's deepcopy": lambda model, _: gpflow.utilities.deepcopy(model),
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "save": by_saving,
}


def train(model):
    model.compile(keras.optimizers.Adam(0.01))
    return model.fit((X, Y), epochs=2, batch_size=10, seed=1, verbose=0).history["loss"]


def step(model):
    """One step without a graph."""
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        loss = model.training_loss((X, Y))
    keras.optimizers.Adam(0.01).apply_gradients(
        zip(tape.gradient(loss, variables), variables, strict=True)
    )


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_copies_of_a_part_of_a_model_predict_the_same_and_train_by_themselves(copy, tmp_path):
    model = on_hidden_layers()
    before = predictions(model)
    copied = copy(model, tmp_path)
    np.testing.assert_array_equal(predictions(copied), before)
    gpflow.utilities.multiple_assign(copied, gpflow.utilities.read_values(model))
    step(copied)
    np.testing.assert_array_equal(predictions(model), before)
    assert_differ(predictions(copied), before)


def test_a_checkpoint_restores_a_part_of_a_model(tmp_path):
    model, other = on_hidden_layers(), on_hidden_layers()
    assert_differ(predictions(other), predictions(model))
    tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    copied = gpflow.utilities.deepcopy(other)
    for restored in (other, copied):
        predictions(restored)
        tf.train.Checkpoint(model=restored).read(str(tmp_path / "checkpoint")).assert_consumed()
        np.testing.assert_array_equal(predictions(restored), predictions(model))


def dense(**options):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, **options)])


def on_network(network):
    k = gpflow.kernels.SquaredExponential(lengthscales=[1.1, 2.0])
    Q = gvi.GaussianProcess(
        gvi.mean_functions.Network(network), gvi.covariances.CholeskySVGP(k, X[:4])
    )
    P = gvi.GaussianProcess(gpflow.functions.Zero(), k)
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.1), num_data=len(X))


def test_regularisers_of_weights_are_in_the_objective_as_in_the_mean_loss_of_keras():
    l2 = keras.regularizers.L2(0.3)
    plain, heavy = (on_network(dense(**each)) for each in ({}, {"kernel_regularizer": l2}))
    weights = plain.variational.mean_function.network.weights["0.kernel"].numpy()
    penalty = len(X) * 0.3 * np.sum(weights**2)
    of_plain = float(plain.training_loss((X, Y)))
    assert_close(heavy.training_loss((X, Y)), of_plain + penalty, precision=np.float32)
    assert_close(
        heavy.training_loss((X[:5], Y[:5])) - plain.training_loss((X[:5], Y[:5])),
        penalty,
        precision=np.float32,
    )
    gpflow.set_trainable(heavy.variational.mean_function, False)
    assert_close(heavy.training_loss((X, Y)), of_plain)


def test_losses_of_what_layers_return_are_refused_in_training_alone():
    network = dense(activity_regularizer="l1", name="tall")
    model = on_network(network)
    model.predict_f(X)
    with pytest.raises(ValueError, match=r"activity_regularizer or add_loss in layer 'tall'"):
        model.training_loss_closure((X, Y), compile=False)()
    network.trainable = False
    on_network(network).training_loss_closure((X, Y), compile=False)()

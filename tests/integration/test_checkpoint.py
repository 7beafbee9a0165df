"""A model survives being saved, copied, and written down as a dictionary of parameters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from gpflow_gvi._core.state import state
from gpflow_gvi.kernels.feature_map import FeatureMap
from tests import catalogue, networks
from tests.tolerances import assert_close, assert_differ

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(5).normal(size=(20, 2))
NEW = np.random.default_rng(6).normal(size=(7, 2))


class Shift(gpflow.functions.MeanFunction):
    """A mean function with a weight of its own."""

    def __init__(self, start):
        super().__init__()
        self.w = tf.Variable(np.full((2, 1), float(start)))

    def __call__(self, X):
        return tf.tanh(X @ self.w)


def build(name, start=0.0):
    """A model whose every parameter depends on `start`, so that restoring has all to do."""
    kernel = catalogue.kernels(1)["single"]
    kernel.variance.assign(1.5 + start)
    Z = catalogue.inducing_points(X[:5] + start)
    r = catalogue.COVARIANCES[name](kernel, Z)
    P = gvi.GaussianProcess(gpflow.functions.Constant([0.3 + start]), kernel)
    Q = gvi.GaussianProcess(Shift(start), r)
    likelihood = gpflow.likelihoods.Gaussian(0.2 + start)
    return gvi.models.PGVI(P, Q, likelihood, num_data=len(X))


def trained(name):
    """As an optimiser leaves a model: each variable somewhere else than it started."""
    model = build(name, start=0.1)
    rng = np.random.default_rng(8)
    for variable in model.trainable_variables:
        variable.assign_add(0.1 * rng.normal(size=variable.shape))
    return model


def predictions(model):
    return np.stack([part.numpy() for part in model.predict_y(NEW)])


def restore_all(folder):
    """What the new process does: build anew, restore, predict, write down."""
    for name in catalogue.COVARIANCES:
        model = build(name)
        path = tf.train.latest_checkpoint(f"{folder}/{name}")
        tf.train.Checkpoint(model=model).restore(path).assert_existing_objects_matched()
        np.save(f"{folder}/{name}.npy", predictions(model))


@pytest.mark.slow
def test_restored_in_a_new_process_it_predicts_the_same_bits(tmp_path):
    models = {name: trained(name) for name in catalogue.COVARIANCES}
    for name, model in models.items():
        tf.train.Checkpoint(model=model).save(str(tmp_path / name / "model"))
    program = (
        f"from tests.integration import test_checkpoint as t; t.restore_all({str(tmp_path)!r})"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)
    for name, model in models.items():
        restored = np.load(tmp_path / f"{name}.npy")
        assert np.array_equal(restored, predictions(model)), name
        assert_differ(restored, predictions(build(name)))


@pytest.mark.parametrize("name", catalogue.covariances_in_turn())
def test_deepcopy_predicts_the_same_and_is_apart(name):
    model = trained(name)
    before = predictions(model)
    copied = gpflow.utilities.deepcopy(model)
    assert np.array_equal(predictions(copied), before)
    for variable in copied.trainable_variables:
        variable.assign(variable + 0.1)
    assert np.array_equal(predictions(model), before)
    assert_differ(predictions(copied), before)


@pytest.mark.parametrize("name", catalogue.covariances_in_turn())
def test_parameter_dict_carries_a_model_over(name):
    model, other = trained(name), build(name)
    gpflow.utilities.multiple_assign(other, gpflow.utilities.read_values(model))
    assert_close(predictions(other), predictions(model))


# Models with networks: their weights, what batch normalisation knows, and the optimiser.

Y = np.sin(X[:, :1])


def with_networks():
    """A network in every place: both means, and the kernels of P and (a copy of it) of Q."""
    dropout = 0.3
    kernel = FeatureMap(catalogue.kernels(1)["single"], networks.regularised(keras, dropout, F=2))
    means = [gvi.mean_functions.Network(networks.regularised(keras, dropout)) for _ in range(2)]
    r = gvi.covariances.SparsePosterior(kernel, X[:5])
    P, Q = gvi.GaussianProcess(means[0], kernel), gvi.GaussianProcess(means[1], r)
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(0.3), num_data=len(X))


def trainer(model, compile=True):
    """Steps of a Keras optimiser on the training loss; the state of both in one checkpoint."""
    optimiser = keras.optimizers.Adam(0.02)
    optimiser.build(list(model.trainable_variables))
    closure = model.training_loss_closure((X, Y), compile=compile)

    def train(steps):
        for _ in range(steps):
            with tf.GradientTape() as tape:
                loss = closure()
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimiser.apply_gradients(zip(gradients, variables, strict=True))

    return train, tf.train.Checkpoint(model=model, optimiser=optimiser)


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path):
    model = with_networks()
    train, checkpoint = trainer(model)
    train(3)
    path = checkpoint.save(str(tmp_path / "model"))
    other = with_networks()
    train_other, other_checkpoint = trainer(other)
    assert_differ(predictions(other), predictions(model))
    other_checkpoint.restore(path).assert_existing_objects_matched()
    assert np.array_equal(predictions(other), predictions(model))
    for mine, theirs in zip(state(model), state(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    stopped = predictions(model)
    train(2)
    train_other(2)
    assert_differ(predictions(model), stopped)
    assert_close(predictions(other), predictions(model))


@pytest.mark.slow
def test_deepcopy_of_a_model_with_networks_trains_by_itself():
    model = with_networks()
    train, _ = trainer(model)
    train(2)  # in a graph, which the copy does without
    copied = gpflow.utilities.deepcopy(model)
    before = predictions(model)
    assert np.array_equal(predictions(copied), before)
    assert len(copied.trainable_variables) == len(model.trainable_variables)
    trainer(copied, compile=False)[0](1)
    assert np.array_equal(predictions(model), before)
    assert_differ(predictions(copied), before)


def test_parameter_dict_carries_the_networks_over():
    """All that is trained; the moving statistics are those that both models start with."""
    model, other = with_networks(), with_networks()
    values = gpflow.utilities.read_values(model)
    assert ".variational.mean_function.network.weights['2.gamma']" in values
    gpflow.utilities.multiple_assign(other, values)
    assert_close(predictions(other), predictions(model))

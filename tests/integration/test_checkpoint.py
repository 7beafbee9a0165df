"""A model survives being saved, copied, and written down as a dictionary of parameters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from tests import catalogue

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
        assert not np.allclose(restored, predictions(build(name))), name


@pytest.mark.parametrize("name", catalogue.COVARIANCES)
def test_deepcopy_predicts_the_same_and_is_apart(name):
    model = trained(name)
    before = predictions(model)
    copied = gpflow.utilities.deepcopy(model)
    assert np.array_equal(predictions(copied), before)
    for variable in copied.trainable_variables:
        variable.assign(variable + 0.1)
    assert np.array_equal(predictions(model), before)
    assert not np.allclose(predictions(copied), before)


@pytest.mark.parametrize("name", catalogue.COVARIANCES)
def test_parameter_dict_carries_a_model_over(name):
    model, other = trained(name), build(name)
    gpflow.utilities.multiple_assign(other, gpflow.utilities.read_values(model))
    np.testing.assert_allclose(predictions(other), predictions(model), rtol=1e-12)

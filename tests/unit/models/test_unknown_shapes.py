"""Data of a graph of which nothing is known in advance, as GPflow's SVGP takes them."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
import tensorflow as tf

import gpflow_gvi as gvi
from tests import models
from tests.tolerances import assert_close

X, Y = models.data(J=2)

CALLS = {
    "predict_f": lambda model, x, y: model.predict_f(x),
    "predict_y": lambda model, x, y: model.predict_y(x),
    "predict_log_density": lambda model, x, y: model.predict_log_density((x, y)),
    "training_loss": lambda model, x, y: model.training_loss((x, y)),
    "closure": lambda model, x, y: model.training_loss_closure((x, y))(),
    "posterior": lambda model, x, y: model.posterior().predict_f(x),
    "elbo": lambda model, x, y: model.elbo((x, y)),
}


def compiled(call, model, shape):
    spec = tf.TensorSpec(shape, tf.float64)
    return tf.function(lambda x, y: call(model, x, y), input_signature=[spec, spec])


@pytest.fixture(scope="module")
def model():
    kind = gvi.models.GVI
    made = models.make(J=2)
    P, Q = made.regulariser, made.variational
    return kind(P, Q, made.likelihood, gvi.divergences.InducingKL(), num_data=len(X))


@pytest.mark.parametrize(
    ("name", "shape"), [*((name, None) for name in CALLS), ("training_loss", [None, None])]
)
def test_data_of_unknown_shape_are_those_of_a_known_one(name, shape, model):
    found = compiled(CALLS[name], model, shape)(X, Y)
    expected = CALLS[name](model, X, Y)
    for part, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert_close(part, other)


@pytest.mark.parametrize("full_cov", [False, True])
@pytest.mark.draws
def test_samples_at_inputs_of_unknown_rank_have_their_shape(full_cov, model):
    def sample(model, x, y):
        return model.predict_f_samples(x, 3, full_cov=full_cov)

    assert compiled(sample, model, None)(X, Y).shape == (3, len(X), 2)


def test_other_numbers_of_columns_are_refused_when_they_are_known(model):
    loss = compiled(CALLS["training_loss"], model, None)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many columns as Q has outputs"):
        loss(X, Y[:, :1])
    with pytest.raises(tf.errors.InvalidArgumentError):
        loss(X[None], Y)


def test_images_of_unknown_rank_are_taken_as_rows_are():
    layers = gvi.kernels.nngp
    kernel = gvi.kernels.NNGP(
        [layers.Conv2D(3), layers.ReLU(), layers.Flatten(), layers.Dense()], input_shape=(4, 4, 1)
    )
    process = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    images = np.random.default_rng(0).normal(size=(5, 4, 4, 1))
    variance = tf.function(process.variance, input_signature=[tf.TensorSpec(None, tf.float64)])
    for given in (images, images.reshape(5, 16)):
        assert_close(variance(given), process.variance(images))

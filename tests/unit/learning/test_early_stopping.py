"""Early stopping: which weights a training of Q leaves."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.learning.early_stopping import KeepBest, tempered_losses
from tests.models import data, make
from tests.tolerances import assert_close


class _Weights(keras.Model):
    """A model of one weight, the number of epochs that it was trained for."""

    def __init__(self):
        super().__init__()
        self.count = self.add_weight(shape=(), initializer="zeros")
        self.built = True


def _left_by(gains, standard_errors=1.0):
    """Return the epochs and the weight that are left if epoch e lowers the losses by gains[e]."""
    model, gains = _Weights(), np.vstack([np.zeros(len(gains[0])), gains])
    callback = KeepBest(
        lambda: 1.0 - gains[int(model.count)], len(gains), standard_errors=standard_errors
    )
    callback.set_model(model)
    callback.on_train_begin()
    for epoch in range(len(gains) - 1):
        model.count.assign_add(1.0)
        callback.on_epoch_end(epoch, {})
    callback.on_train_end()
    return callback.epochs, int(model.count)


def test_the_best_epoch_is_left_if_its_gain_exceeds_its_standard_error(rng):
    noise = rng.normal(size=50)
    noise = (noise - np.mean(noise)) / np.std(noise) * np.sqrt(50.0)  # a standard error of 1
    assert _left_by([0.5 + noise, 1.1 + noise, 0.9 + noise]) == (2, 2)
    assert _left_by([0.5 + noise, 0.9 + noise]) == (0, 0)
    assert _left_by([noise - 2.0]) == (0, 0)
    assert _left_by([0.5 + noise, 0.9 + noise], standard_errors=0.0) == (2, 2)


def test_one_row_for_validation_is_believed():
    assert _left_by([[0.1], [0.3], [0.2]]) == (2, 2)


@pytest.mark.parametrize("J", [1, 2])
def test_losses_are_those_of_the_tempered_model(J):
    model = make(J)
    expected = gvi.temper(model, data(J)).predict_log_density(data(J))
    assert_close(tempered_losses(model.variational, model.likelihood, data(J)), -expected)


def test_without_gaussian_noise_losses_are_those_of_the_model():
    X, Y = data()
    rows = X, (Y > 0.0).astype(float)
    model = make(likelihood=gpflow.likelihoods.Bernoulli())
    expected = -model.predict_log_density(rows)
    assert_close(tempered_losses(model.variational, model.likelihood, rows), expected)

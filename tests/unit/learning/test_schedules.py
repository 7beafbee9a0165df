"""The length of training Q, and that a file and a call mean the same by it."""

import keras
import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.experiments.parts.training import BatchesTraining
from gpflow_gvi.learning.q_training import EarlyStopping, Passes


@pytest.mark.parametrize("N", [50, 1000, 7001, 40_000, 10**6])
def test_a_network_alone_has_at_least_five_thousand_steps(N):
    alone, added = Passes()(N, network_alone=True), Passes()(N)
    assert alone.steps >= 5000
    assert added.epochs == 20 <= alone.epochs
    assert alone.steps - alone.steps_per_epoch < 5000 or alone == added
    assert Passes(7)(N, network_alone=True) == Passes(7)(N)  # what is asked for is done


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("N", [50, 7001, 40_000])
def test_a_file_has_the_same_epochs(N, is_alone):
    assert BatchesTraining().schedule(N, is_alone) == Passes()(N, is_alone)
    of_steps = BatchesTraining(steps_per_epoch=30, epochs=9).schedule(N, is_alone)
    assert (of_steps.epochs, of_steps.steps_per_epoch) == (9, 30)
    whole = BatchesTraining(batch_size=None).schedule(N, is_alone)
    assert whole.batch_size == N


def test_a_training_is_not_stopped_by_few_epochs_without_a_gain():
    """It takes a quarter, as the rate falls along a cosine and gains at its end."""
    assert [EarlyStopping().patience_of(epochs) for epochs in (8, 40)] == [5, 10]


@pytest.mark.slow
def test_a_network_alone_is_seen_in_one_call(rng):
    """A quarter of its epochs, after which it may be stopped, is more than 20."""
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    network = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)]
    )
    learned = gvi.learn(
        (X, np.sin(X) + 0.3 * rng.normal(size=X.shape)), mean=network, num_inducing=10
    )
    assert len(learned.history["loss"]) > 20

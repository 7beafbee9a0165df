"""A Gaussian process around a network: the network's predictions, and how far they are trusted."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf
import tf_keras

import gpflow_gvi as gvi
from gpflow_gvi._core.errors import NumericsWarning

SHAPE = (6, 6, 1)
RNG = np.random.default_rng(0)


def images(N, seed=0):
    """Images of three classes, each with a bright row of its own, in noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=N)
    X = rng.uniform(0.0, 0.6, size=(N, *SHAPE))
    X[np.arange(N), 2 * labels] += 0.25
    return X.astype(np.float32), labels


def network(K=keras, *, J=3, activation=None, dtype="float32", shape=SHAPE):
    K.utils.set_random_seed(0)
    return K.Sequential(
        [
            K.Input(shape, dtype=dtype),
            K.layers.Flatten(dtype=dtype),
            K.layers.Dense(8, "relu", name="hidden", dtype=dtype),
            K.layers.Dense(6, "tanh", name="last_hidden", dtype=dtype),
            K.layers.Dense(J, activation, dtype=dtype),
        ]
    )


def trained(K=keras, **options):
    net = network(K, **options)
    from_logits = options.get("activation") is None
    loss = K.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    net.compile(K.optimizers.Adam(1e-2), loss)
    net.fit(*images(400, seed=5), epochs=6, verbose=0)
    return net


def around(net, data=None, **options):
    options = {"validation_data": images(150, seed=1), "num_inducing": 30} | options
    return gvi.learn(
        images(250) if data is None else data, network=net, train_network=False, **options
    )


@pytest.fixture(scope="module")
def net():
    return trained()


@pytest.fixture(scope="module")
def learned(net):
    return around(net, calibration_fraction=0.3)


NEW = images(500, seed=2)


def test_class_of_every_row_is_that_of_the_network(net, learned):
    logits = net.predict(NEW[0], verbose=0)
    p = learned.predict_proba(NEW[0])
    np.testing.assert_array_equal(p.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(np.argsort(p), np.argsort(logits))
    mean, variance = (np.asarray(part) for part in learned.predict_f(NEW[0]))
    factor = mean / logits
    np.testing.assert_allclose(factor, factor[0, 0], rtol=1e-4)  # one temperature for all
    np.testing.assert_array_equal(np.ptp(variance, axis=1), 0.0)


def test_probabilities_are_those_of_the_gaussian_logits(learned):
    mean, variance = (np.asarray(part) for part in learned.predict_f(NEW[0][:5]))
    samples = RNG.normal(mean, np.sqrt(variance), size=(20_000, 5, 3))
    expected = scipy.special.softmax(samples, axis=-1).mean(axis=0)
    np.testing.assert_allclose(learned.predict_proba(NEW[0][:5]), expected, atol=0.01)


def test_held_out_rows_are_not_predicted_worse_than_by_the_network(net, learned):
    X, Y = images(150, seed=1)
    plain = scipy.special.softmax(net.predict(X, verbose=0).astype(float), axis=1)
    ours = gvi.metrics.cross_entropy(Y, learned.predict_proba(X))
    assert ours <= gvi.metrics.cross_entropy(Y, plain / plain.sum(1, keepdims=True)) + 1e-3


def test_inputs_unlike_the_data_are_found(learned):
    inverted = 2.0 - 3.0 * NEW[0]
    assert gvi.metrics.auroc(learned.score_ood(NEW[0]), learned.score_ood(inverted)) > 0.9
    known, unknown = learned.entropies(NEW[0]), learned.entropies(inverted)
    assert unknown.epistemic.mean() > 2.0 * known.epistemic.mean()
    _, variance = learned.predict_f(NEW[0])
    np.testing.assert_allclose(learned.score_ood(NEW[0]), np.mean(variance, axis=1), rtol=1e-6)


def test_far_from_the_data_the_variance_is_that_of_the_prior(learned):
    _, variance = learned.predict_f(np.full((1, *SHAPE), 1e4))
    # The features are tanh, so not far away in that space: compare with what P has there.
    assert np.all(variance > 3.0 * np.median(learned.score_ood(NEW[0])))


def test_sets_hold_the_label(learned):
    sets = learned.predict_set(NEW[0], 0.8)
    assert 0.7 < np.mean(sets[np.arange(500), NEW[1]]) < 0.9


def test_saved_loaded_and_exported_it_predicts_the_same(learned, tmp_path):
    learned.save(tmp_path / "model")
    loaded = gvi.load(tmp_path / "model")
    expected = learned.predict_proba(NEW[0])
    np.testing.assert_allclose(loaded.predict_proba(NEW[0]), expected, rtol=1e-10)
    np.testing.assert_allclose(loaded.score_ood(NEW[0]), learned.score_ood(NEW[0]), rtol=1e-10)
    gvi.export(learned, tmp_path / "exported")
    signature = tf.saved_model.load(tmp_path / "exported").signatures["predict"]
    exported = signature(X=tf.constant(NEW[0], tf.float64))["probabilities"]
    np.testing.assert_allclose(exported, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.argmax(exported, axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize("K", [keras, tf_keras], ids=["keras", "tf_keras"])
def test_probabilities_are_as_good_as_logits(K):
    net = trained(K, activation="softmax")
    ours = around(net).predict_proba(NEW[0])
    np.testing.assert_array_equal(
        ours.argmax(axis=1), net.predict(NEW[0], verbose=0).argmax(axis=1)
    )
    logits = K.Sequential([*net.layers[:-1], K.layers.Dense(3)])
    logits.build((None, *SHAPE))
    logits.set_weights(net.get_weights())
    np.testing.assert_allclose(ours, around(logits).predict_proba(NEW[0]), atol=2e-3)

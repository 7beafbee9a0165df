"""What training rows say of a class beside an overfit network, and how much it is trusted."""

from __future__ import annotations

import gpflow
import keras
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import tensorflow as tf

import gpflow_gvi as gvi
from tests.tolerances import ITERATIVE, assert_close, assert_estimates

pytestmark = pytest.mark.draws


def rows(N, seed):
    """Rows of three classes, of which every fourth has a random label."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 8))
    labels = np.argmax(X[:, :3] + X[:, 3:6], axis=1)
    return X, np.where(rng.uniform(size=N) < 0.25, rng.integers(3, size=N), labels)


TRAIN, UNSEEN, NEW = rows(200, 0), rows(300, 1), rows(3000, 2)


def trained(data, epochs, units=64):
    keras.utils.set_random_seed(0)
    net = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(units, "relu"), keras.layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(True)
    net.compile(keras.optimizers.Adam(1e-2), loss, steps_per_execution=7)
    net.fit(*data, epochs=epochs, verbose=0)
    return net


def around(net, **options):
    options = {"validation_data": UNSEEN, "train_network": False} | options
    return gvi.learn(TRAIN, network=net, **options)


def nll(learned, data=NEW):
    return gvi.metrics.cross_entropy(data[1], learned.predict_proba(data[0]))


@pytest.fixture(scope="module")
def overfit():
    return trained(TRAIN, 100)  # it knows wrong labels by heart


@pytest.fixture(scope="module")
def learned(overfit):
    return around(overfit, num_inducing=len(TRAIN[0]), features="penultimate")


@pytest.mark.slow
def test_an_overfit_network_is_corrected_and_not_only_scaled(overfit, learned):
    alone = around(overfit, predictor=None, num_inducing=len(TRAIN[0]), features="penultimate")
    logits = overfit.predict(NEW[0], verbose=0)
    np.testing.assert_array_equal(alone.predict(NEW[0]), logits.argmax(axis=1))
    assert nll(learned) < 0.97 * nll(alone)
    assert np.mean(learned.predict(NEW[0]) == NEW[1]) > np.mean(logits.argmax(axis=1) == NEW[1])
    assert "NLL by correction" in str(learned.summary())
    found = learned.predict_proba(NEW[0]).argmax(axis=1)
    np.testing.assert_array_equal(found, learned.predict(NEW[0]))
    # How little is known of an input does not depend on what the mean is, but for a factor.
    ratio = learned.score_ood(NEW[0]) / alone.score_ood(NEW[0])
    assert_close(ratio, ratio[0], ITERATIVE)


@pytest.mark.slow
def test_the_correction_is_a_stack_of_regressions_of_the_labels(learned):
    """Exact regressions by GPflow, the weights by another optimiser than ours."""

    def parts(X):
        """The logits and, by all training rows, the two regressions: [N, 3] and [2, N, 3]."""
        of_new = np.asarray(learned.inputs.standard(X))
        m = []
        for columns in (slice(3, 67), slice(67, 75)):  # the hidden layer, and the components
            x = of_train[:, columns]
            distance = np.median(scipy.spatial.distance.pdist(x))
            kernel = gpflow.kernels.SquaredExponential(np.mean(centred**2), 0.5 * distance)
            exact = gpflow.models.GPR((x, targets), kernel, noise_variance=2.0)
            m.append(exact.predict_f(of_new[:, columns])[0])
        return of_new[:, :3], np.stack(m)

    of_train = np.asarray(learned.inputs.standard(TRAIN[0]))
    centred = of_train[:, :3] - of_train[:, :3].mean(axis=1, keepdims=True)
    codes = np.eye(3)[TRAIN[1]]
    targets = 2.0 * (codes - codes.mean(axis=0))
    h, m = parts(UNSEEN[0])

    def loss(x):
        f = np.exp(x[0]) * h + np.tensordot(np.abs(x[1:]), m, axes=1)
        log_p = scipy.special.log_softmax(f, axis=1)
        return -np.sum(log_p[np.arange(len(f)), UNSEEN[1]]) + 0.5 * np.sum(np.square(x))

    x = scipy.optimize.minimize(
        loss, [-1.0, 0.3, 0.3], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10}
    ).x
    h, m = parts(NEW[0][:50])
    factor = learned.model.variational.mean_function.factor
    expected = factor * (h + np.tensordot(np.abs(x[1:]) / np.exp(x[0]), m, axes=1))
    assert_close(learned.predict_f(NEW[0][:50])[0], expected, ITERATIVE)


@pytest.mark.slow
def test_a_network_that_unseen_rows_confirm_is_not_corrected_for_the_worse():
    many = rows(3000, 5)
    net = trained(many, 8, units=32)
    few = {"validation_data": tuple(part[:100] for part in UNSEEN)}
    assert nll(around(net, **few)) < nll(around(net, **few, predictor=None)) + 0.005


@pytest.mark.slow
def test_without_unseen_rows_there_is_nothing_to_correct_by(overfit):
    learned = around(overfit, validation_data=None, validation_fraction=0.0)
    logits = overfit.predict(NEW[0], verbose=0)
    halved = overfit.predict(0.5 * NEW[0], verbose=0)
    assert_close(learned.predict_f(0.5 * NEW[0])[0], halved, precision="float32")
    np.testing.assert_array_equal(learned.predict(NEW[0]), logits.argmax(axis=1))


def test_rows_that_were_learned_from_do_not_correct(overfit):
    """Its regressions know the labels of these, which says nothing of others."""
    wrong = TRAIN[0], np.random.default_rng(0).permutation(TRAIN[1])
    learned = gvi.learn(wrong, network=overfit, train_network=False, validation_data=wrong)
    logits = overfit.predict(NEW[0], verbose=0)
    np.testing.assert_array_equal(learned.predict(NEW[0]), logits.argmax(axis=1))


def test_far_away_the_correction_is_lost(learned):
    p = learned.predict_proba(1e3 * NEW[0][:500])
    frequencies = (np.bincount(TRAIN[1]) + 1.0) / (len(TRAIN[1]) + 3.0)
    assert_estimates(p, frequencies, np.sqrt(frequencies * (1.0 - frequencies) / 512))


@pytest.mark.slow
def test_saved_exported_and_updated_it_is_corrected_alike(learned, tmp_path):
    expected = learned.predict_proba(NEW[0])
    learned.save(tmp_path / "model")
    assert_close(gvi.load(tmp_path / "model").predict_proba(NEW[0]), expected)
    gvi.export(learned, tmp_path / "exported")
    signature = tf.saved_model.load(tmp_path / "exported").signatures["predict"]
    exported = signature(X=tf.constant(NEW[0]))["probabilities"]
    assert_close(exported, expected, ITERATIVE)
    updated = learned.update(*UNSEEN)
    assert_close(updated.predict_f(NEW[0])[0], learned.predict_f(NEW[0])[0])


@pytest.mark.slow
def test_one_logit_is_corrected():
    def two(data):
        return data[0], np.where(data[1] == 0, "yes", "no")

    keras.utils.set_random_seed(0)
    net = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
    )
    net.compile(keras.optimizers.Adam(1e-2), keras.losses.BinaryCrossentropy(from_logits=True))
    net.fit(TRAIN[0], TRAIN[1] == 0, epochs=100, verbose=0)
    options = {"network": net, "train_network": False, "validation_data": two(UNSEEN)}
    learned, alone = (
        gvi.learn(two(TRAIN), predictor=predictor, **options) for predictor in ("auto", None)
    )
    of_new = NEW[0], NEW[1] == 0
    assert nll(learned, of_new) < nll(alone, of_new)
    labels = two(NEW)[1]
    accuracy = [np.mean(each.predict(NEW[0]) == labels) for each in (learned, alone)]
    assert accuracy[0] > accuracy[1]

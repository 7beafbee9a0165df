"""How far training rows reach, and what is said beyond: against NumPy and Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.spatial
import scipy.stats
import sklearn.covariance
import tensorflow as tf

from gpflow_gvi.learning.around_network.reach import Classes, beyond, leaning, reach_of
from tests.tolerances import assert_close, assert_estimates


@pytest.mark.parametrize("shape", [(3,), (4, 2, 1)], ids=["a table", "images"])
def test_factor_is_the_squared_distance_in_that_of_the_farthest_row(rng, shape):
    X = rng.normal(size=(1200, *shape)) * rng.uniform(0.1, 10.0, size=shape) + 5.0
    flat = X.reshape(1200, -1)
    scale = flat.std(axis=0) if len(shape) == 1 else np.sqrt(flat.var(axis=0).mean())
    reach = reach_of(X, lambda block: block)

    def squares(rows):
        return np.sum(np.square((rows - flat.mean(axis=0)) / scale), axis=1)

    assert_close(beyond(reach, tf.constant(flat)), np.ones((1200, 1)))
    found = beyond(reach, tf.constant(10.0 * flat))[:, 0]
    assert_close(found, np.maximum(squares(10.0 * flat) / squares(flat).max(), 1.0))


def test_distance_is_that_of_mahalanobis_from_the_nearest_class(rng):
    """Against SciPy, with the covariance of scikit-learn."""
    labels = rng.integers(3, size=200)
    features = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5)) + 3.0 * np.eye(3, 5)[labels]
    means = np.stack([features[labels == k].mean(axis=0) for k in range(3)])
    covariance = sklearn.covariance.LedoitWolf(assume_centered=True).fit(features - means[labels])
    classes = Classes.of(features, labels)
    found = np.asarray(classes.distance(features))[:, 0]
    inverse = np.linalg.inv(covariance.covariance_)
    expected = scipy.spatial.distance.cdist(features, means, "mahalanobis", VI=inverse).min(axis=1)
    assert_close(np.mean(np.square(found)), 1.0)
    assert_close(found, expected / np.sqrt(np.mean(np.square(expected))))
    dead = np.c_[features, np.full(200, 2.0)]  # a feature that is the same in all rows
    assert np.all(np.isfinite(Classes.of(dead, labels).distance(dead + 1.0)))


def test_noise_around_it_makes_classes_as_frequent_as_they_are(rng):
    for counts in ([50, 30, 15, 4], [7, 7, 7], [900, 98]):
        c, K = leaning(np.array(counts, dtype=float), len(counts)), len(counts)
        largest = np.argmax(c + rng.normal(size=(100_000, K)), axis=1)
        expected = (np.array(counts) + 1.0) / (sum(counts) + K)
        error = np.sqrt(expected * (1.0 - expected) / 100_000)
        assert_estimates(np.bincount(largest, minlength=K) / 100_000, expected, error)
    assert_close(leaning(np.array([7.0, 1.0]), 1), [scipy.stats.norm.ppf(0.2)])

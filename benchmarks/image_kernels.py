"""The kernels of images that the benchmarks compare, in GPflow's default float."""

from __future__ import annotations

import keras
import numpy as np
from gpflow.config import default_float
from gpflow.kernels import SquaredExponential
from scipy.spatial.distance import pdist

import gpflow_gvi as gvi
from gpflow_gvi.kernels import NNGP, FeatureMap
from gpflow_gvi.kernels.nngp import Conv2D, Dense, Flatten, ReLU
from gpflow_gvi.regulariser.inducing_points import uniform
from gpflow_gvi.regulariser.lbfgs import lbfgs

SHAPE = (28, 28, 1)


def ard(X: np.ndarray, labels: np.ndarray, *, rows: int = 500, seed: int = 0) -> SquaredExponential:
    """Return a kernel with a lengthscale for each pixel, fitted by the evidence of some labels."""
    chosen = uniform(X, rows, seed=seed).indices
    Y = np.eye(10, dtype=default_float())[labels[chosen]]
    fitted = gvi.fit_regulariser(
        (X[chosen], Y - Y.mean(0)),
        SquaredExponential(lengthscales=np.full(np.prod(SHAPE), 10.0)),
        rows,
        select=uniform,
        minimise=lambda loss, variables: lbfgs(loss, variables, max_iterations=50),
        max_rounds=1,
    )
    return fitted.prior.kernel


def fully_connected() -> NNGP:
    """Return the kernel of two hidden layers of ReLUs, with He's variances of the weights."""
    layers = [Dense(2.0, 0.1), ReLU(), Dense(2.0, 0.1), ReLU(), Dense()]
    return NNGP(layers, input_shape=SHAPE[0] * SHAPE[1])


def convolutional() -> NNGP:
    """Return the kernel of two convolutions of 3 x 3 with ReLUs, with He's variances."""
    convolutions = [Conv2D(3, weight_variance=2.0, bias_variance=0.1) for _ in range(2)]
    return NNGP(
        [convolutions[0], ReLU(), convolutions[1], ReLU(), Flatten(), Dense()], input_shape=SHAPE
    )


def network(num_filters: int = 8, num_features: int = 32) -> keras.Model:
    """Return two convolutions with pooling, and features [N, F], not trained yet."""
    return keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Conv2D(num_filters, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(2 * num_filters, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(num_features),
        ]
    )


def train(features: keras.Model, X: np.ndarray, labels: np.ndarray, *, epochs: int = 3) -> float:
    """Train a network below a linear layer to tell digits; return the last epoch's accuracy."""
    classifier = keras.Sequential([features, keras.layers.ReLU(), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    classifier.compile(keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"])
    history = classifier.fit(X, labels, batch_size=100, epochs=epochs, verbose=0)
    return history.history["accuracy"][-1]


def feature_map(X: np.ndarray, labels: np.ndarray, *, epochs: int = 3, seed: int = 0) -> FeatureMap:
    """Return a squared exponential on the features of a network that was trained on labels.

    Its lengthscale is the median distance between features.
    """
    keras.utils.set_random_seed(seed)
    features = network()
    train(features, X, labels, epochs=epochs)
    distances = pdist(np.asarray(features(X[:500]), dtype=float))
    return FeatureMap(SquaredExponential(lengthscales=np.median(distances)), features)

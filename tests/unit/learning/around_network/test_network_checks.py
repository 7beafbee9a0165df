"""Whether a network fits the pixels, the classes and the units that it is given."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning

L = keras.layers
RNG = np.random.default_rng(20261201)
BYTES = RNG.integers(256, size=(300, 4, 4, 1)).astype(np.uint8)
FACTOR = RNG.normal(size=16) / 255.0
SCORE = BYTES.reshape(len(BYTES), -1) @ FACTOR
SHIFT = -np.median(SCORE)


def of_pixels(unit, activation=None, *, shift=SHIFT, factor=5.0):
    """A network that is right about pixels in this unit."""
    net = keras.Sequential([keras.Input((4, 4, 1)), L.Flatten(), L.Dense(1, activation)])
    weights = factor * unit * FACTOR[:, None]
    net.layers[-1].set_weights([weights, np.array([factor * shift])])
    return net


def around(net, Y):
    (X, unseen), (Y, Y_unseen) = (np.split(part, [200]) for part in (BYTES, Y))
    return gvi.learn(
        (X, Y),
        network=net,
        train_network=False,
        predictor=None,
        num_inducing=20,
        validation_data=(unseen, Y_unseen),
    )


@pytest.mark.parametrize("activation", [None, "sigmoid"])
@pytest.mark.parametrize("flipped", [False, True])
def test_pixels_of_a_network_of_one_column_are_what_it_was_fitted_to(activation, flipped):
    y = (-SHIFT < SCORE) != flipped
    factor = -5.0 if flipped else 5.0
    with pytest.warns(NumericsWarning, match="log score .* they are taken as they are"):
        learned = around(of_pixels(1.0, activation, factor=factor), y)
    assert np.mean(learned.predict(BYTES) == y) > 0.95


@pytest.mark.filterwarnings("error:X has pixels")
@pytest.mark.parametrize("shift", [SHIFT, 0.0])
def test_pixels_of_a_network_of_one_column_are_divided_where_that_fits(shift):
    y = -shift < SCORE
    learned = around(of_pixels(255.0, "sigmoid", shift=shift), y)
    assert np.mean(learned.predict(BYTES) == y) > 0.95


def test_pixels_of_a_network_of_numbers_are_what_it_was_fitted_to():
    Y = 40.0 + SCORE + 0.05 * RNG.normal(size=len(SCORE))
    net = of_pixels(1.0, shift=40.0, factor=1.0)
    with pytest.warns(NumericsWarning, match="R² .* they are taken as they are"):
        learned = around(net, Y)
    assert np.mean(np.abs(learned.predict(BYTES)[:, 0] - Y)) < 0.1


@pytest.mark.filterwarnings("error:X has pixels")
def test_pixels_of_a_network_of_numbers_are_divided_where_that_fits():
    Y = SCORE + 0.05 * RNG.normal(size=len(SCORE))
    learned = around(of_pixels(255.0, shift=0.0, factor=1.0), Y)
    assert np.mean(np.abs(learned.predict(BYTES)[:, 0] - Y)) < 0.1

"""Whether a network fits the pixels, the classes and the units that it is given."""

from __future__ import annotations

import gpflow
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


@pytest.mark.parametrize(("activation", "flipped"), [(None, False), ("sigmoid", True)])
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


def of_classes(names, absent):
    """A network that tells three classes apart in a table, and rows of two of them."""
    X = RNG.normal(size=(300, 3)).astype(np.float32)
    net = keras.Sequential([keras.Input((3,)), L.Dense(3)])
    net.layers[-1].set_weights([5.0 * np.eye(3), np.zeros(3)])
    labels = np.array(names)[X.argmax(axis=1)]
    kept = labels != absent
    return net, X[kept], labels[kept]


def of_rows(net, X, y, **options):
    options = {"num_inducing": 20, "train_network": False} | options
    rows, unseen = ((X[at], y[at]) for at in (slice(100), slice(100, None)))
    return gvi.learn(rows, network=net, validation_data=unseen, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("names", "absent"), [("abc", "c"), ("bca", "b")])
def test_a_class_without_rows_is_a_class(names, absent):
    net, X, y = of_classes(list(names), absent)
    learned = of_rows(net, X, y, classes=list(names), predictor=None)
    assert learned.classes_.tolist() == ["a", "b", "c"]
    assert learned.predict_proba(X).shape == (len(X), 3)
    assert np.mean(learned.predict(X) == y) > 0.9
    columns = net.predict(X, verbose=0)[:, np.argsort(list(names))]
    np.testing.assert_array_equal(np.argsort(learned.predict_f(X)[0]), np.argsort(columns))
    given = {"likelihood": gpflow.likelihoods.Softmax(3), "classes": list(names), "predictor": None}
    np.testing.assert_array_equal(of_rows(net, X, y, **given).predict(X), learned.predict(X))


@pytest.mark.parametrize("options", [{}, {"train_network": None, "features": "penultimate"}])
def test_a_class_without_rows_and_a_name_is_told_of(options):
    net, X, y = of_classes(list("abc"), "a")
    message = (
        r"columns for 3 classes, but Y has 2, \['.', '.'\]: pass classes=\[\.\.\.\], the names"
    )
    with pytest.raises(ValueError, match=message):
        of_rows(net, X, y, **options)


def test_a_network_of_too_few_columns_is_told_of():
    _, X, y = of_classes(list("abc"), None)
    net = keras.Sequential([keras.Input((3,)), L.Dense(2)])
    with pytest.raises(ValueError, match=r"for 2 classes, but Y has 3, .*give it 3 outputs"):
        of_rows(net, X, y)


@pytest.mark.filterwarnings("ignore:train_network=False without")
def test_a_classifier_of_scikit_learn_has_classes_without_rows():
    net, X, y = of_classes(list("bca"), "b")
    options = {"network": net, "train_network": False, "num_inducing": 20, "random_state": 0}
    fitted = gvi.GVIClassifier(
        classes=list("bca"), class_weight={"a": 1.0, "c": 2.0}, **options
    ).fit(X, y)
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    assert fitted.score(X, y) > 0.9
    with pytest.raises(ValueError, match=r"Y has 2, \['a', 'c'\]: pass classes"):
        gvi.GVIClassifier(**options).fit(X, y)

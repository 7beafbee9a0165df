"""Labels of any number type go in; what is none comes back with a reason."""

from __future__ import annotations

import enum

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from gpflow.likelihoods import Bernoulli, Gaussian, MultiClass, Softmax

from gpflow_gvi._core import labels
from gpflow_gvi._core.data import Data
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.learning.arguments import Arguments, observations

X = np.zeros((4, 1))
Y = np.array([0, 2, 1, 2])


def _left(Y):
    asked = {"outputs": "independent", "missing": "ignore", "sample_weight": None, "loss": None}
    return observations(Arguments(data=(X[:3], Y), **asked))


@pytest.mark.parametrize("likelihood", [MultiClass(3), Softmax(3)])
@pytest.mark.parametrize("given", [Y, Y[:, None].astype(float), Y.astype(np.uint8).tolist()])
def test_labels_of_any_type_become_what_the_likelihood_takes(likelihood, given):
    _, observed = Data.of((X, given), likelihood)
    np.testing.assert_array_equal(observed, Y[:, None])
    likelihood.log_prob(X, np.zeros((4, 3)), observed)  # it takes them
    for compiled in (True, False):
        function = tf.function(labels.observed) if compiled else labels.observed
        np.testing.assert_array_equal(function(likelihood, tf.constant(given)), Y[:, None])


@pytest.mark.parametrize(
    ("likelihood", "given", "message"),
    [
        (MultiClass(3), [0, 1, 2, 3], r"1 of 4 places \(the first is 3\)"),
        (MultiClass(3), [1, 2, 3, -1], "whole numbers from 0 to 2 in 2 of 4"),
        (Softmax(3), [0.0, 1.5, 2.0, 0.0], "the first is 1.5"),
        (Softmax(3), [0.0, np.nan, 2.0, 0.0], "the first is nan"),
        (Bernoulli(), [-1.0, 1.0, 1.0, 1.0], "whole numbers from 0 to 1"),
        (Bernoulli(), np.zeros((4, 1, 1)), r"Y has shape \(4, 1, 1\)"),
        (Softmax(3), np.eye(3)[[0, 2, 1, 2]], r"Y has shape \(4, 3\).*argmax\(axis=1\)"),
        (MultiClass(3), [0, 1, 2], "X has 4 rows and Y has 3"),
    ],
)
def test_what_is_no_label(likelihood, given, message):
    with pytest.raises(ValueError, match=message):
        Data.of((X, given), likelihood)


def test_names_are_to_be_numbered():
    with pytest.raises(TypeError, match="return_inverse"):
        Data.of((X, np.array(["cat", "dog", "dog", "cat"])), MultiClass(2))


def test_in_a_graph_a_wrong_label_stops_the_computation():
    likelihood = MultiClass(3)
    function = tf.function(lambda given: labels.observed(likelihood, given))
    with pytest.raises(tf.errors.InvalidArgumentError, match="whole numbers from 0 to 2"):
        function(tf.constant([0, 3]))


def test_responses():
    np.testing.assert_array_equal(labels.responses(Softmax(3), Y[:, None]), np.eye(3)[Y])
    np.testing.assert_array_equal(labels.responses(Bernoulli(), [[0.0], [1.0]]), [[-1.0], [1.0]])


def test_classes_without_examples_give_a_warning():
    with pytest.warns(NumericsWarning, match=r"no example of classes 1, 3 of 4"):
        Data.of((X, [0, 2, 0, 2]), MultiClass(4)).warn_of_missing_classes()
    Data.of((X, Y), MultiClass(3)).warn_of_missing_classes()
    Data.of((X, X), Gaussian()).warn_of_missing_classes()


NAMES = np.array(["b", "c", "a", "c"])


class Animal(str, enum.Enum):
    CAT, DOG = "cat", "dog"


@pytest.mark.parametrize(
    ("given", "likelihood", "classes", "codes"),
    [
        (NAMES, None, ["a", "b", "c"], [1, 2, 0, 2]),
        (NAMES.astype(object), Softmax(3), ["a", "b", "c"], [1, 2, 0, 2]),
        (pd.Series(NAMES, dtype="category"), None, ["a", "b", "c"], [1, 2, 0, 2]),
        (pd.Series([3, 1, 3], dtype="category"), None, [1, 3], [1, 0, 1]),
        (pd.DataFrame({"k": pd.Categorical([3, 1, 3])}), None, [1, 3], [1, 0, 1]),
        (pd.DataFrame({"category": pd.Categorical(NAMES)}), None, ["a", "b", "c"], [1, 2, 0, 2]),
        ([True, False, True], None, [False, True], [1, 0, 1]),
        (np.array(list(NAMES), dtype=object), None, ["a", "b", "c"], [1, 2, 0, 2]),
        (np.array(["b", *NAMES[1:]], dtype=object), None, ["a", "b", "c"], [1, 2, 0, 2]),
        (np.array([np.True_, False, np.True_], dtype=object), None, [False, True], [1, 0, 1]),
        (np.array([Animal.DOG, Animal.CAT], dtype=object), None, ["cat", "dog"], [1, 0]),
        (NAMES[:, None].tolist(), MultiClass(3), ["a", "b", "c"], [1, 2, 0, 2]),
        ([-1, 1, 1], Bernoulli(), [-1, 1], [0, 1, 1]),
        ([7.0, 3.0, 5.0], Softmax(3), [3.0, 5.0, 7.0], [2, 0, 1]),
        ([2, 0, 2], Softmax(3), [0, 1, 2], [2, 0, 2]),
    ],
)
def test_labels_of_any_kind_are_encoded(given, likelihood, classes, codes):
    found = labels.classes_of(given, likelihood)
    assert found.tolist() == classes
    np.testing.assert_array_equal(labels.encoded("Y", given, found), codes)


@pytest.mark.parametrize("given", [[True, False], [True], np.array([[False], [True]])])
def test_booleans_stay_booleans_under_a_likelihood(given):
    assert [is_true is True for is_true in labels.classes_of(given, Bernoulli()).tolist()] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("given", "likelihood"),
    [
        ([0.0, 1.0], None),
        ([3, 5, 7], None),
        (np.eye(3), Softmax(3)),
        ([1, 2, 3, 4], Softmax(3)),
        (NAMES, Gaussian()),
        (np.array(["a", 1.0], dtype=object), None),
    ],
)
def test_numbers_that_nothing_calls_labels_are_none(given, likelihood):
    assert labels.classes_of(given, likelihood) is None


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"Y has 3 classes, \['a', 'b', 'c'\], but .* for 4"):
        labels.classes_of(NAMES, Softmax(4))
    with pytest.raises(ValueError, match=r"in 1 of 2 rows \(the first is .*'x'.*\). The classes"):
        labels.encoded("Y", ["a", "x"], np.array(["a", "b"]))
    with pytest.raises(ValueError, match="class 'a' alone"):
        labels.likelihood_of(np.array(["a"]))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.ma.MaskedArray(["a", "b", "a"], mask=[0, 0, 1]), ValueError, "Y is masked in 1 of 3"),
        (np.ma.MaskedArray([0, 1, 1], mask=[0, 1, 0]), ValueError, "Y is masked in 1 of 3"),
        ([[0], [0, 1]], TypeError, "Y is .* makes no array"),
        (keras.Input((1,)), TypeError, "Y is .* makes no array"),
    ],
)
@pytest.mark.parametrize("likelihood", [None, Bernoulli()])
def test_labels_that_are_masked_or_make_no_array_are_refused(given, error, message, likelihood):
    with pytest.raises(error, match=message):
        labels.classes_of(given, likelihood)


@pytest.mark.parametrize("missing", [np.nan, np.inf])
def test_what_is_missing_is_no_class(missing):
    given = [2.0, 1.0, missing]
    assert labels.classes_of(given, Softmax(3)) is None  # so that validation refuses it
    with pytest.raises(ValueError, match=r"in 1 of 3 rows \(the first is .*(row 2|inf)"):
        labels.encoded("Y", given, np.arange(3.0))


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        (np.array(["a", None, "b"], dtype=object), ["a", "b"]),
        (pd.Series(["a", pd.NA, "b"], dtype="string"), ["a", "b"]),
        (pd.Series([1, np.nan, 2], dtype="category"), [1, 2]),
        (pd.DataFrame({"k": [True, None, False]}), [False, True]),
        (np.array([np.str_("a"), None, np.str_("b")], dtype=object), ["a", "b"]),
        (np.array([np.True_, None, np.False_], dtype=object), [False, True]),
    ],
)
def test_missing_labels_are_told_by_their_rows(given, rest):
    with pytest.raises(
        ValueError, match=r"Y has missing values in 1 of 3 rows \(the first is row 1\)\. L"
    ):
        labels.classes_of(given, None)
    (_, left), jointly, numbers, _ = _left(given)
    assert labels.classes_of(left, None).tolist() == rest
    assert numbers.tolist() == [0, 2]
    assert not jointly


def test_masked_labels_are_left_out_on_request():
    masked = np.ma.MaskedArray(["a", "b", "c"], mask=[0, 1, 0])
    (_, left), *_ = _left(masked)
    assert labels.classes_of(left, None).tolist() == ["a", "c"]


def test_numbers_as_text_are_hardly_labels(recwarn):
    labels.classes_of(["1", "0", "1", "1", "3", "0"], None)
    labels.classes_of(["a1", "b2", "c3"], None)
    labels.classes_of(["0", "1"], None)
    assert not recwarn
    with pytest.warns(NumericsWarning, match=r"text, as .*'0.5'.*4 classes in 5 rows.*astype"):
        labels.classes_of(["0.5", "1.5", "1.5", "2", "1e3"], None)


def test_the_likelihood_of_two_classes_has_one_latent_function():
    assert isinstance(labels.likelihood_of(np.array([False, True])), Bernoulli)
    assert labels.num_classes(labels.likelihood_of(NAMES[:3])) == 3

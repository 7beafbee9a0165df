"""What users hand in as data: taken with the values it has, or refused with a reason."""

from __future__ import annotations

import warnings

import gpflow
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf

from gpflow_gvi._core.data import (
    Data,
    inputs,
    largest,
    observations,
    warn_of_unscaled_images,
)
from gpflow_gvi.errors import NumericsWarning
from tests.tolerances import assert_close

X = np.arange(12.0).reshape(6, 2)


def spoilt(value):
    bad = X.astype(object)
    bad[4, 1] = value
    return bad


@pytest.mark.parametrize(
    "given",
    [
        X.astype(object),
        X.tolist(),
        list(X),
        pd.DataFrame(X, index=range(6)[::-1]),
        pd.DataFrame(X).astype("Float64"),
        np.ma.MaskedArray(X),
        X.astype(np.longdouble),
        X.astype(">f4"),
        tf.constant(X, tf.float32),
        tf.Variable(X),
        gpflow.Parameter(X),
    ],
)
def test_numbers_in_any_form_are_taken_as_they_are(given):
    taken = inputs("X", given)
    assert taken.dtype == tf.float64
    np.testing.assert_array_equal(taken, X)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (np.ma.MaskedArray(X, mask=X == 3.0), ValueError, r"X is masked in 1 of 12.*filled"),
        (scipy.sparse.csr_matrix(X), TypeError, r"X is a sparse csr_matrix; pass X\.toarray\(\)"),
        (tf.sparse.from_dense(X), TypeError, "X is .*a SparseTensor, which makes no array"),
        (spoilt(None), TypeError, r"X has dtype object and at \[4, 1\] None"),
        (spoilt("abc"), TypeError, r"at \[4, 1\] 'abc', which is not a number"),
        (spoilt(np.nan), ValueError, "X has NaN .* 1 of 6 rows .*row 4"),
        (spoilt(10**400), ValueError, "X has numbers that are too large"),
        (pd.DataFrame(spoilt(pd.NA)), TypeError, "<NA>"),
        ([[1.0, 2.0], [3.0]], TypeError, r"X is \[\[1\.0, 2\.0\], \[3\.0\]\].*equal length"),
        ({"x": X}, TypeError, "X is .*a dict, which makes no array"),
        ((row for row in X), TypeError, "a generator, which makes no array"),
        (None, TypeError, "X is None"),
        (tf.data.Dataset.range(3), TypeError, "X is .*RangeDataset, which makes no array"),
        (X.astype("datetime64[D]"), TypeError, "X has dtype datetime64.*timedelta64"),
        (X.astype(str), TypeError, r"astype\('float64'\); numpy\.unique"),
        (X[:, :0], ValueError, r"X has shape \(6, 0\): there are no columns"),
        (1e200 * X, ValueError, r"5 rows|6 rows.*1\.1e\+201, too large to be squared in float64"),
    ],
)
def test_what_is_no_number_is_refused_by_name(given, kind, message):
    with pytest.raises(kind, match=message):
        inputs("X", given)


def test_the_largest_numbers_that_are_taken_can_be_squared_and_added():
    for dtype in (np.float32, np.float64):
        value = np.full(10_000, largest(dtype), dtype)
        assert np.isfinite(np.sum(np.square(value)))
        with np.errstate(over="ignore"):
            assert np.isinf(np.square(np.multiply(1e3, value[0], dtype=dtype)))


def test_observations_are_columns():
    np.testing.assert_array_equal(observations("Y", pd.Series([1.0, 2.0])), [[1.0], [2.0]])
    with pytest.raises(ValueError, match=r"Y has shape \(6, 1, 1\).*Y\.reshape\(len\(Y\), -1\)"):
        Data.of((X, X[:, :1, None]))


def test_tensors_stay_differentiable():
    given = tf.constant(X, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(given)
        value = tf.reduce_sum(inputs("X", given) ** 2)
    assert_close(tape.gradient(value, given), 2.0 * X)


@pytest.mark.parametrize("given", [X, (X, X, X), None, tf.data.Dataset.range(3)])
def test_data_are_a_pair(given):
    with pytest.raises(ValueError, match=r"validation_data is a .*must be the pair of arrays"):
        Data.of(given, name="validation_data")


def test_infinite_values_are_named_by_row_and_column():
    X = np.zeros((5, 3))
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"1 of 5 rows \(the first is row 3, column 1\)"):
        inputs("X", X)
    with pytest.raises(ValueError, match=r"row 3, column 'pay'\)"):
        inputs("X", pd.DataFrame(X, columns=["age", "pay", "time"]))
    with pytest.raises(ValueError, match=r"first is row 3\)"):
        observations("Y", X[:, 1])


def test_tables_of_many_codes_are_no_images(rng):
    codes = rng.integers(0, 2, size=(20, 40)).astype(float)
    codes[:, 0] = rng.integers(90, 200, size=20)  # a pressure beside answers of yes and no
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unscaled_images("X", codes)
    with pytest.warns(NumericsWarning, match="images that were not scaled"):
        warn_of_unscaled_images("X", rng.integers(0, 256, size=(1, 784)).astype(float))

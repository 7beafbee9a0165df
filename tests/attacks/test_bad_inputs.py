"""Bad data at every entry: each is taken with finite results, or refused by a message of ours.

`KINDS` makes bad values of good arrays, `ENTRIES` are the functions that take data, and `trial`
puts the one into the other.
"""

from __future__ import annotations

import array
import decimal
import fractions
import functools
import re
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import gpflow
import keras
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf
from gpflow.likelihoods import Gaussian, MultiClass

import gpflow_gvi as gvi
from tests.tolerances import ROUNDING

N, D = 24, 2
_RNG = np.random.default_rng(5)
# Numbers that every floating-point type of 16 bits or more has exactly.
X = np.round(_RNG.normal(size=(N, D)) * 16.0) / 16.0
Y = np.round((np.sin(X[:, :1]) + 0.3 * _RNG.normal(size=(N, 1))) * 64.0) / 64.0
CLASSES = (np.arange(N) % 3).astype(float)[:, None]

SAME, REFUSED, EITHER = "same", "refused", "either"
"""What must come of a kind: the result of the good array; a refusal; that, or finite numbers."""


class Kind(NamedTuple):
    """A kind of bad value."""

    make: Callable[[np.ndarray], Any]
    """Make it of a good array [N, D]."""
    outcome: str
    only: str = "XY"
    """What it may stand for: X, Y or both."""


def spoilt(value: Any, dtype: Any = float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that puts a value into an array."""

    def make(good: np.ndarray) -> np.ndarray:
        bad = good.astype(dtype)
        bad[3, -1] = value
        return bad

    return make


def ragged(good: np.ndarray) -> list[Any]:
    return [*good[:-1].tolist(), [*good[-1], 1.0]]


def strided(good: np.ndarray) -> np.ndarray:
    return np.repeat(np.repeat(good, 2, 0), 2, 1)[::2, ::2]


def masked(good: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.MaskedArray(good, mask=np.arange(good.size).reshape(good.shape) == 3)


def structured(good: np.ndarray) -> np.ndarray:
    return np.array([(row[0],) for row in good], dtype=[("a", float)])


def table(good: np.ndarray, dtype: Any = None) -> pd.DataFrame:
    return pd.DataFrame(good, columns=[f"c{i}" for i in range(good.shape[1])], dtype=dtype)


def with_value(value: Any, dtype: Any = object) -> Callable[[np.ndarray], pd.DataFrame]:
    def make(good: np.ndarray) -> pd.DataFrame:
        return table(spoilt(value, object)(good), object).astype(dtype)

    return make


def with_dates(good: np.ndarray) -> pd.DataFrame:
    return table(good).assign(c0=pd.date_range("2020-01-01", periods=len(good)))


def dates(good: np.ndarray) -> np.ndarray:
    return np.datetime64("2020-01-01") + np.arange(good.size).reshape(good.shape)


def batches(good: np.ndarray) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(good).batch(5)


KINDS: dict[str, Kind] = {
    # Numbers in other clothes.
    "float16": Kind(lambda a: a.astype(np.float16), SAME),
    "float32": Kind(lambda a: a.astype(np.float32), SAME),
    "long double": Kind(lambda a: a.astype(np.longdouble), SAME),
    "big endian": Kind(lambda a: a.astype(">f8"), SAME),
    "strided": Kind(strided, SAME),
    "lists": Kind(np.ndarray.tolist, SAME),
    "list of tensors": Kind(lambda a: [tf.constant(row) for row in a], EITHER),
    "matrix": Kind(np.asmatrix, EITHER),
    "mask of none": Kind(np.ma.MaskedArray, SAME),
    "object floats": Kind(lambda a: a.astype(object), SAME),
    "Fractions": Kind(np.vectorize(fractions.Fraction, otypes=[object]), EITHER),
    "Decimals": Kind(np.vectorize(decimal.Decimal, otypes=[object]), EITHER),
    "tensor": Kind(tf.constant, SAME),
    "variable": Kind(tf.Variable, SAME),
    "Parameter": Kind(gpflow.Parameter, SAME),
    "keras variable": Kind(lambda a: keras.Variable(a, dtype="float64"), EITHER),
    "DataFrame": Kind(table, SAME),
    "DataFrame, other index": Kind(lambda a: table(a).set_index(np.arange(len(a))[::-1]), SAME),
    "DataFrame, nullable": Kind(lambda a: table(a).astype("Float64"), SAME),
    "DataFrame of objects": Kind(lambda a: table(a).astype(object), SAME),
    "DataFrame, one name": Kind(lambda a: table(a).set_axis(["c"] * a.shape[1], axis=1), EITHER),
    "whole numbers": Kind(lambda a: np.round(3 * a).astype(int), EITHER),
    "bytes of images": Kind(lambda a: np.abs(60 * a).astype(np.uint8), EITHER),
    "booleans": Kind(lambda a: a > 0.0, EITHER),
    # No numbers.
    "None": Kind(lambda a: None, REFUSED),
    "a number": Kind(lambda a: 1.5, REFUSED),
    "text": Kind(lambda a: "data.csv", REFUSED),
    "a dict": Kind(lambda a: {"x": a}, REFUSED),
    "a generator": Kind(lambda a: (row for row in a), REFUSED),
    "a range": Kind(lambda a: range(len(a)), REFUSED, "X"),
    "a function": Kind(lambda a: np.sin, REFUSED),
    "KerasTensor": Kind(lambda a: keras.Input(a.shape[1:]), REFUSED),
    "Dataset": Kind(batches, REFUSED),
    "objects with None": Kind(spoilt(None, object), REFUSED),
    "objects with NaN": Kind(spoilt(float("nan"), object), REFUSED),
    "objects with 10**400": Kind(spoilt(10**400, object), REFUSED),
    "strings": Kind(lambda a: np.full(a.shape, "abc"), REFUSED),
    "bytes": Kind(lambda a: a.astype(bytes), EITHER),
    "string tensor": Kind(lambda a: tf.constant(a.astype(str)), EITHER),
    "complex": Kind(lambda a: a + 1j, REFUSED),
    "datetimes": Kind(dates, REFUSED),
    "structured": Kind(structured, REFUSED),
    "csr matrix": Kind(scipy.sparse.csr_matrix, REFUSED),
    "SparseTensor": Kind(tf.sparse.from_dense, REFUSED),
    "RaggedTensor": Kind(lambda a: tf.RaggedTensor.from_tensor(tf.constant(a)), REFUSED),
    "ragged lists": Kind(ragged, REFUSED),
    "masked": Kind(masked, REFUSED),
    "DataFrame with dates": Kind(with_dates, REFUSED),
    "DataFrame with NA": Kind(with_value(pd.NA, "Float64"), REFUSED),
    "DataFrame of categories": Kind(
        lambda a: pd.DataFrame({f"c{i}": pd.Categorical(["a", "b"] * (N // 2)) for i in range(D)}),
        REFUSED,
    ),
    "sparse DataFrame": Kind(lambda a: table(a).astype(pd.SparseDtype(float, 0.0)), EITHER),
    # Numbers that are wrong.
    "NaN": Kind(spoilt(np.nan), REFUSED),
    "infinity": Kind(spoilt(np.inf), REFUSED),
    "NaN in a tensor": Kind(lambda a: tf.constant(spoilt(np.nan)(a)), REFUSED),
    "too large a long double": Kind(spoilt(np.longdouble("1e4000"), np.longdouble), REFUSED),
    "a huge whole number": Kind(lambda a: np.full(a.shape, 2**63 - 1) - (a > 0), REFUSED),
    "1e308": Kind(lambda a: a * 1e307, EITHER),
    "1e200": Kind(lambda a: a * 1e200, EITHER),
    "1e-310": Kind(lambda a: a * 1e-310, EITHER),
    "one 1e9": Kind(spoilt(1e9), EITHER),
    "far off": Kind(lambda a: a + 1e9, EITHER),
    "constant column": Kind(lambda a: np.hstack([a[:, :-1], np.ones((len(a), 1))]), EITHER),
    "equal rows": Kind(lambda a: a[np.zeros(len(a), int)], EITHER),
    # Shapes.
    "no rows": Kind(lambda a: a[:0], REFUSED),
    "no columns": Kind(lambda a: a[:, :0], REFUSED),
    "an empty list": Kind(lambda a: [], REFUSED),
    "one row": Kind(lambda a: a[:1], EITHER),
    "a row less": Kind(lambda a: a[:-1], EITHER),
    "a vector": Kind(lambda a: a[:, 0], REFUSED, "X"),
    "a Series": Kind(lambda a: pd.Series(a[:, 0]), REFUSED, "X"),
    "a vector Y": Kind(lambda a: a[:, 0], SAME, "Y"),
    "a Series Y": Kind(lambda a: pd.Series(a[:, 0], index=range(9, 9 + len(a))), SAME, "Y"),
    "an array.array": Kind(lambda a: array.array("d", a[:, 0]), SAME, "Y"),
    "three axes": Kind(lambda a: a[:, :, None], REFUSED, "Y"),
    "three axes X": Kind(lambda a: a[:, None, :], EITHER, "X"),
    "a row for all": Kind(lambda a: a.T, EITHER),
    "another column": Kind(lambda a: np.hstack([a, a[:, :1]]), EITHER),
    "a column less": Kind(lambda a: a[:, 1:], EITHER, "X"),
}


# Models, fitted once.


@functools.cache
def model(*, classes: bool = False) -> gvi.models.GVI:
    J = 3 if classes else 1
    k = gpflow.kernels.SquaredExponential(lengthscales=[1.0, 1.0])
    P, Z = gvi.GaussianProcess(gpflow.functions.Zero(J), k), X[:5]
    mean = gvi.mean_functions.Inducing(k, Z, num_latent_gps=J)
    Q = gvi.GaussianProcess(mean, gvi.covariances.CholeskySVGP(k, Z, num_latent_gps=J))
    made = gvi.models.PGVI(P, Q, MultiClass(3) if classes else Gaussian(0.1), num_data=N)
    made.compile(keras.optimizers.Adam(0.01))
    made.fit((X, CLASSES if classes else Y), epochs=2, verbose=0)
    return made


def fresh() -> gvi.models.GVI:
    """Return a model to be trained, without the graphs of others."""
    copied = gpflow.utilities.deepcopy(model())
    copied.compile(keras.optimizers.Adam(0.01))
    return copied


def options(**more: Any) -> dict[str, Any]:
    return {
        "kernel": gpflow.kernels.SquaredExponential(),
        "num_inducing": 5,
        "epochs": 0,
        "validation_fraction": 0.0,
        **more,
    }


@functools.cache
def learned(*, classes: bool = False) -> Any:
    if classes:
        return gvi.learn((X, CLASSES), **options(likelihood=MultiClass(3)))
    return gvi.learn((X, Y), **options())


@functools.cache
def conformal(*, classes: bool = False) -> Any:
    return gvi.conformal(model(classes=classes), (X, CLASSES if classes else Y))


def estimator(kind: str) -> Any:
    kernel = gpflow.kernels.SquaredExponential()
    return getattr(gvi, kind)(kernel=kernel, num_inducing=5, random_state=0)


@functools.cache
def regressor() -> Any:
    return estimator("GVIRegressor").fit(X, Y[:, 0])


@functools.cache
def classifier() -> Any:
    return estimator("GVIClassifier").fit(X, CLASSES[:, 0])


def trained(x: Any, y: Any, **more: Any) -> Any:
    made = fresh()
    made.fit((x, y), epochs=1, batch_size=None, verbose=0, **more)
    return made.predict_y(X)


class Entry(NamedTuple):
    """A function that takes data."""

    call: Callable[[Any, Any], Any]
    """Of X and Y; it returns numbers."""
    takes: str
    """What is bad in turn: X, Y or both."""
    fits: bool = False
    """Whether any number of columns is right, as nothing has been fitted before."""
    dataset: bool = False
    classes: bool = False
    """Whether Y are labels."""


def _classes(x: Any, y: Any) -> Any:
    made = gvi.learn((x, y), **options(likelihood=MultiClass(3)))
    return made.predict_proba(X)


ENTRIES: dict[str, Entry] = {
    "learn": Entry(lambda x, y: gvi.learn((x, y), **options()).predict_y(X), "XY", fits=True),
    "learn classes": Entry(_classes, "XY", fits=True, classes=True),
    "learn validation_data": Entry(
        lambda x, y: gvi.learn((X, Y), **options(validation_data=(x, y))).predict_y(X), "XY"
    ),
    "fit": Entry(trained, "XY"),
    "fit validation_data": Entry(lambda x, y: trained(X, Y, validation_data=(x, y)), "XY"),
    "evaluate": Entry(lambda x, y: model().evaluate(x, y, verbose=0), "XY"),
    "predict": Entry(lambda x, _: model().predict(x, verbose=0), "X", dataset=True),
    "predict_f": Entry(lambda x, _: model().predict_f(x), "X"),
    "predict_y": Entry(lambda x, _: model().predict_y(x), "X"),
    "predict_f_samples": Entry(lambda x, _: model().predict_f_samples(x, 2), "X"),
    "predict_log_density": Entry(lambda x, y: model().predict_log_density((x, y)), "XY"),
    "predict_log_density classes": Entry(
        lambda x, y: model(classes=True).predict_log_density((x, y)), "XY", classes=True
    ),
    "posterior": Entry(lambda x, _: model().posterior().predict_f(x), "X"),
    "training_loss": Entry(lambda x, y: model().training_loss((x, y)), "XY"),
    "temper": Entry(
        lambda x, y: gvi.temper(model(), (x, y)).variational.kernel.factor.numpy(), "XY"
    ),
    "conformal": Entry(lambda x, y: gvi.conformal(model(), (x, y)).scores, "XY"),
    "conformal classes": Entry(
        lambda x, y: gvi.conformal(model(classes=True), (x, y)).scores, "XY", classes=True
    ),
    "conformal predict_interval": Entry(lambda x, _: conformal().predict_interval(x, 0.5), "X"),
    "conformal predict_set": Entry(lambda x, _: conformal(classes=True).predict_set(x, 0.5), "X"),
    "metrics.evaluate": Entry(
        lambda x, y: list(gvi.metrics.evaluate(model(), (x, y)).values()), "XY"
    ),
    "metrics.evaluate learned": Entry(
        lambda x, y: list(gvi.metrics.evaluate(learned(), (x, y)).values()), "XY"
    ),
    "fit_regulariser": Entry(
        lambda x, y: (
            (
                gvi.fit_regulariser((x, y), gpflow.kernels.SquaredExponential(), 5, max_rounds=1)
            ).log_evidence
        ),
        "XY",
        fits=True,
    ),
    "Learned.predict_y": Entry(lambda x, _: learned().predict_y(x), "X"),
    "Learned.predict_interval": Entry(lambda x, _: learned().predict_interval(x), "X"),
    "Learned.predict_f_samples": Entry(lambda x, _: learned().predict_f_samples(x, 2), "X"),
    "Learned.predict_log_density": Entry(lambda x, y: learned().predict_log_density((x, y)), "XY"),
    "Learned.predict_proba": Entry(lambda x, _: learned(classes=True).predict_proba(x), "X"),
    "class_probabilities": Entry(
        lambda x, _: gvi.classification.class_probabilities(model(classes=True), x), "X"
    ),
    "draw_functions": Entry(
        lambda x, _: gvi.sampling.draw_functions(model().variational, 2, seed=0)(x), "X"
    ),
    "GVIRegressor.fit": Entry(
        lambda x, y: estimator("GVIRegressor").fit(x, y).predict(X).ravel(), "XY", fits=True
    ),
    "GVIRegressor.predict": Entry(lambda x, _: regressor().predict(x, return_std=True), "X"),
    "GVIRegressor.score": Entry(lambda x, y: regressor().score(x, y), "XY"),
    "GVIClassifier.fit": Entry(
        lambda x, y: estimator("GVIClassifier").fit(x, y).predict_proba(X),
        "XY",
        fits=True,
        classes=True,
    ),
    "GVIClassifier.predict_proba": Entry(lambda x, _: classifier().predict_proba(x), "X"),
    "GVIClassifier.score": Entry(lambda x, y: classifier().score(x, y), "XY", classes=True),
}

SLOW = {name for name, entry in ENTRIES.items() if entry.fits or name == "learn validation_data"}
"""Those that are slow where they take the data."""


class Trial(NamedTuple):
    """What became of bad data at an entry."""

    outcome: str
    """accepted, refused, or what is wrong."""
    detail: str = ""

    @property
    def wrong(self) -> bool:
        return self.outcome not in ("accepted", "refused")


def good(entry: Entry) -> tuple[np.ndarray, np.ndarray]:
    return X, CLASSES if entry.classes else Y


@functools.cache
def reference(name: str) -> list[np.ndarray]:
    """Return the numbers that an entry makes of good data."""
    return called(ENTRIES[name], *good(ENTRIES[name]))


def called(entry: Entry, x: Any, y: Any) -> list[np.ndarray]:
    tf.random.set_seed(0)
    return [np.asarray(part, dtype=float) for part in tf.nest.flatten(entry.call(x, y))]


def trial(name: str, which: str, kind: str) -> Trial:
    """Put bad data into an entry in place of X or of Y."""
    entry, bad = ENTRIES[name], KINDS[kind]
    expected = reference(name)
    values = dict(zip("XY", good(entry), strict=True))
    values[which] = bad.make(values[which])
    try:
        result = called(entry, values["X"], values["Y"])
    except Exception as error:
        found = refusal(error, name, which)
        # Labels that are objects and numbers are none to scikit-learn's own classifiers either.
        unknown = name.startswith("GVIClassifier") and which == "Y" and "object" in kind
        if bad.outcome == SAME and not found.wrong and not unknown:
            return Trial("refused, though right", found.detail)
        return found
    if not all(np.all(np.isfinite(part)) for part in result):
        return Trial("not finite")
    if bad.outcome == REFUSED and not (kind == "Dataset" and entry.dataset):
        if entry.classes and which == "Y" and name.startswith("GVIClassifier"):
            return Trial("accepted")  # whatever can be sorted is a label there
        return Trial("taken silently")
    if bad.outcome == SAME:
        shapes = [part.shape for part in result] == [part.shape for part in expected]
        if not shapes or not all(
            np.allclose(a, b, ROUNDING.float32, ROUNDING.float32)
            for a, b in zip(result, expected, strict=True)
        ):
            return Trial("another result")
    if kind in ("a row less", "no rows") and len(entry.takes) == 2:
        return Trial("another number of rows taken")
    if kind in ("another column", "a column less") and which == "X" and not entry.fits:
        return Trial("another number of columns taken")
    return Trial("accepted")


OURS = re.compile(r"/gpflow_gvi/|/sklearn/utils/|/sklearn/metrics/")
"""Where errors are raised that say what is wrong. Estimators have scikit-learn's own messages."""


def refusal(error: Exception, name: str, which: str) -> Trial:
    """Judge an error."""
    innermost = traceback.extract_tb(error.__traceback__)[-1].filename
    told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    if type(error) not in (ValueError, TypeError):
        return Trial("an error of another type", told)
    if not OURS.search(innermost) or ("/sklearn/" in innermost and not name.startswith("GVI")):
        return Trial("an error of another library", told)
    if len(str(error)) > 1500:
        return Trial("a long message", told)
    if not re.search(rf"\b({which}|{which.lower()}|\w*data|labels|targets?)\b", str(error)):
        return Trial("a message that does not name the argument", told)
    return Trial("refused", told)


QUICK = [
    ("learn", "X", "masked"),
    ("learn", "Y", "objects with None"),
    ("evaluate", "X", "no columns"),
    ("predict_f", "X", "lists"),
    ("predict_y", "X", "another column"),
    ("predict_log_density", "Y", "a Series Y"),
    ("metrics.evaluate", "X", "DataFrame with NA"),
    ("temper", "Y", "a generator"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "which", "kind"), QUICK)
def test_a_few_kinds_of_bad_data(name: str, which: str, kind: str) -> None:
    found = trial(name, which, kind)
    assert not found.wrong, found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ENTRIES)
def test_bad_data(name: str) -> None:
    found = {
        (which, kind): trial(name, which, kind)
        for which in ENTRIES[name].takes
        for kind, bad in KINDS.items()
        if which in bad.only
    }
    wrong = {each: result for each, result in found.items() if result.wrong}
    assert not wrong, "\n".join(f"{each}: {result}" for each, result in wrong.items())

"""Any fitted predictor as a mean function: boosted trees, a pipeline, a simulator."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import AnyNDArray, TensorType
from gpflow.functions import MeanFunction
from scipy.spatial import cKDTree

from .._core.threads import one_thread

MAX_ROWS_AT_ONCE = 10_000
"""Predictions of more rows are made in blocks, so that memory stays bounded."""

ROUNDINGS = 100
"""Rows that differ by less than so many rounding errors are the same."""

_MAX_KEPT = 8
"""The number of arrays of rows whose predictions are kept for later calls."""


class Predictor(MeanFunction):
    """The mean m(x) = h(x) of a predictor h that was fitted before: no gradient, no training.

    Predictions for the last arrays of rows are kept, so that an optimisation that asks for the same
    rows at each step computes them once. The predictor runs in Python, also within a
    `tf.function`; a model with one cannot be exported as a SavedModel.

    :param model: h, any object with a method `predict`, as estimators of scikit-learn have, or a
        function of arrays, from [N, D] to [N] or [N, J]. The average is taken of a list of such.
    :param num_outputs: the number J of outputs.
    """

    # What is no part of TensorFlow's bookkeeping.
    _TF_MODULE_IGNORED_PROPERTIES = MeanFunction._TF_MODULE_IGNORED_PROPERTIES | {
        "models",
        "_kept",
    }

    def __init__(self, model: Any, *, num_outputs: int = 1) -> None:
        super().__init__()
        models = tuple(model) if isinstance(model, list | tuple) else (model,)
        for each in models:
            require_predictor(each)
        self.models = models
        self.num_outputs = num_outputs
        self._kept: _Kept | None = None

    @check_shapes(
        "X: [N, D]",
        "return: [N, J]",
    )
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return h(X): [N, J]."""
        X = tf.convert_to_tensor(X)
        values = tf.numpy_function(self.predict, [X], X.dtype, stateful=False)
        return tf.ensure_shape(values, [X.shape[0], self.num_outputs])

    def predict(self, X: AnyNDArray) -> AnyNDArray:
        """Return h(X) as an array: [N, J]."""
        if self._kept is None:
            self._kept = _Kept()
        return self._kept.at(X, self._evaluate)

    def _evaluate(self, X: AnyNDArray) -> AnyNDArray:
        """Return the average prediction of all models: [N, J]."""
        values = np.zeros((len(X), self.num_outputs), X.dtype)
        for i in range(0, len(X), MAX_ROWS_AT_ONCE):
            rows = X[i : i + MAX_ROWS_AT_ONCE]
            for model in self.models:
                values[i : i + len(rows)] += predictions(model, rows, self.num_outputs)
        return values / len(self.models)

    def __deepcopy__(self, memo: dict[int, Any]) -> Predictor:
        # Fitted models do not change, and can be large: copies share them.
        copy = object.__new__(type(self))
        memo[id(self)] = copy
        copy.__dict__.update(self.__dict__)
        return copy


class CrossFitted(Predictor):
    """The mean of K predictors, each fitted without one part of the rows.

    At a row that they were fitted to it is the prediction of the one that has not seen that row, so
    that residuals there are as large as elsewhere; at any other row it is the average of all. Rows
    are the same up to rounding, as a graph scales inputs with other rounding errors than NumPy.

    :param models: h_1, ..., h_K.
    :param X: the rows that they were fitted to: [N, D].
    :param out_of_fold: the prediction at each row by the model that has not seen it: [N, J].
    """

    _TF_MODULE_IGNORED_PROPERTIES = Predictor._TF_MODULE_IGNORED_PROPERTIES | {
        "X",
        "out_of_fold",
        "_rows",
    }

    _rows: _Rows | None = None  # made where it is needed first

    def __init__(self, models: Sequence[Any], X: AnyNDArray, out_of_fold: AnyNDArray) -> None:
        super().__init__(list(models), num_outputs=out_of_fold.shape[-1])
        self.X = np.asarray(X)
        self.out_of_fold = np.asarray(out_of_fold)

    def _evaluate(self, X: AnyNDArray) -> AnyNDArray:
        if X.shape == self.X.shape and np.array_equal(X, self.X):
            return self.out_of_fold.astype(X.dtype)
        if self._rows is None:
            self._rows = _Rows(self.X)
        found = self._rows.places(X)
        values = np.empty((len(X), self.num_outputs), X.dtype)
        values[found >= 0] = self.out_of_fold[found[found >= 0]]
        if np.any(found < 0):
            values[found < 0] = super()._evaluate(X[found < 0])
        return values


class _Kept:
    """Predictions at the last arrays of rows. A copy is None, and makes its own.

    TensorFlow evaluates parts of a graph in several threads: one of them predicts at a time.
    """

    def __init__(self) -> None:
        self._values: dict[Any, AnyNDArray] = {}
        self._lock = threading.RLock()

    def at(self, X: AnyNDArray, evaluate: Callable[[AnyNDArray], AnyNDArray]) -> AnyNDArray:
        """Return the predictions at X, evaluated if they are not kept."""
        key = (X.shape, X.dtype.str, hashlib.sha256(X.tobytes()).digest())  # X may be large
        with self._lock:
            value = self._values.pop(key) if key in self._values else evaluate(X)
            self._values[key] = value
            if len(self._values) > _MAX_KEPT:
                del self._values[next(iter(self._values))]
            return value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


class _Rows:
    """Rows that are found again up to rounding: [N, D]."""

    def __init__(self, X: AnyNDArray) -> None:
        largest = np.max(np.abs(X), axis=0)
        self._size = np.where(largest == 0.0, 1.0, largest)  # [D]
        self._tree = cKDTree(X / self._size)
        self._rounding = float(ROUNDINGS * np.finfo(X.dtype).eps)

    def places(self, X: AnyNDArray) -> AnyNDArray:
        """Return the number of the row that each of X is, or -1: [N]."""
        nearest = {"p": np.inf, "distance_upper_bound": self._rounding}
        inside = np.clip(X, -2.0 * self._size, 2.0 * self._size)  # what is farther off is no row
        distance, place = self._tree.query(inside / self._size, **nearest)
        return np.where(np.isfinite(distance), place, -1)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # as for `_Kept`


def predictions(model: Any, X: AnyNDArray, num_outputs: int) -> AnyNDArray:
    """Return a model's predictions at X, validated: [N, J]."""
    with one_thread("openmp", len(X)):  # threads wait for one another at each boosted tree
        values = np.asarray(model.predict(X) if hasattr(model, "predict") else model(X))
    if values.shape == (len(X),) and num_outputs == 1:
        values = values[:, None]
    name = type(getattr(model, "model", model)).__name__
    if values.shape != (len(X), num_outputs):
        raise ValueError(
            f"predictor {name} returns an array of shape {values.shape} for {len(X)} rows; it must "
            f"be {(len(X), num_outputs)}" + (f" or {(len(X),)}." if num_outputs == 1 else ".")
        )
    if not (np.issubdtype(values.dtype, np.number) and np.all(np.isfinite(values))):
        raise ValueError(
            f"predictor {name} returns {values.dtype} values that are not all finite numbers. Give "
            "one that predicts a number for each row, or leave out the rows that it cannot predict."
        )
    return values.astype(X.dtype)


def require_predictor(model: Any) -> None:
    """Raise unless a model can predict."""
    if isinstance(model, type) or not (hasattr(model, "predict") or callable(model)):
        raise TypeError(
            f"predictor is {model!r:.200}; it must be a fitted object with a method predict, as an "
            "estimator of scikit-learn, or a function of arrays."
        )

"""Fitted estimators in files of skops, and random changes of their arrays and numbers.

As a program it reads changed files and predicts: `python -m tests.attacks.estimator_files 200`
prints a line for each of so many of each estimator: a crash is seen by the missing lines.
"""

from __future__ import annotations

import io
import json
import signal
import sys
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import ensemble, linear_model, neighbors, neural_network, svm, tree

from gpflow_gvi.saving import estimator_files

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 3))
y = X[:, 0] + np.abs(X[:, 1])
LABELS = np.digitize(y, [0.0, 1.0])

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "histograms": lambda: ensemble.HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=3),
    "histograms of classes": lambda: ensemble.HistGradientBoostingClassifier(
        max_iter=3, min_samples_leaf=3
    ),
    "forest": lambda: ensemble.RandomForestRegressor(n_estimators=3),
    "forest of classes": lambda: ensemble.RandomForestClassifier(n_estimators=3),
    "extra trees": lambda: ensemble.ExtraTreesRegressor(n_estimators=3),
    "isolation": lambda: ensemble.IsolationForest(n_estimators=3, max_features=2),
    "bagging": lambda: ensemble.BaggingRegressor(n_estimators=3, max_features=2),
    "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=3),
    "boosting of classes": lambda: ensemble.GradientBoostingClassifier(n_estimators=3),
    "tree": lambda: tree.DecisionTreeRegressor(),
    "vectors": lambda: svm.SVR(),
    "vectors of classes": lambda: svm.SVC(),
    "neighbours": lambda: neighbors.KNeighborsClassifier(algorithm="brute"),
    "network": lambda: neural_network.MLPRegressor(
        hidden_layer_sizes=(5,), solver="adam", max_iter=20
    ),
    "linear": lambda: linear_model.Ridge(),
}

NUMBERS = (-(2**62), -(2**31), -1000, -2, -1, 0, 1, 2, 7, 255, 2**20, 2**31 - 1, 2**40, 2**62)
"""What takes the place of whole numbers."""


def fitted(name: str) -> Any:
    """The estimator of a name, fitted."""
    estimator = ESTIMATORS[name]()
    is_of_labels = name.endswith("classes") or name == "neighbours"
    with warnings.catch_warnings():  # that so few steps do not converge
        warnings.simplefilter("ignore")
        return estimator.fit(X, LABELS if is_of_labels else y)


def content(estimator: Any) -> bytes:
    """The file of an estimator."""
    return estimator_files.write(estimator)[0]


def changed(original: bytes, rng: np.random.Generator) -> bytes:
    """A file with one to three changes."""
    parts = parts_of(original)
    arrays = [name for name in parts if name.endswith(".npy")]
    for _ in range(rng.integers(1, 4)):
        if arrays and rng.random() < 0.8:
            name = arrays[rng.integers(len(arrays))]
            array = np.load(io.BytesIO(parts[name]))
            stream = io.BytesIO()
            np.save(stream, _changed_array(array, rng))
            parts[name] = stream.getvalue()
        else:
            text = parts["schema.json"].decode()
            parts["schema.json"] = _changed_numbers(text, rng).encode()
    return archived(parts)


def parts_of(content: bytes) -> dict[str, bytes]:
    """The files in a file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archived(parts: dict[str, bytes]) -> bytes:
    """The file that has these in it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return stream.getvalue()


def _changed_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shape = rng.integers(8)
    if shape == 0 and array.ndim:
        return array[: rng.integers(len(array) + 1)]
    if shape == 1:
        return np.concatenate([np.atleast_1d(array)] * 2)
    if shape == 2:
        return array[..., None] if rng.random() < 0.5 else array.ravel()
    if shape == 3 and array.dtype.fields is None:
        return array.astype(["i4", "f4", "f8", "u1", "i8"][rng.integers(5)])
    array = array.copy()
    for _ in range(rng.integers(1, 5)):
        part = array[str(rng.choice(array.dtype.names))] if array.dtype.names else array
        if part.size:
            place = tuple(rng.integers(n) for n in part.shape)
            # Also the number of another element, which makes a circle of a path.
            number = rng.choice([rng.choice(NUMBERS), rng.integers(part.size)])
            part[place] = np.array(number).astype(part.dtype)
    return array


def _changed_numbers(text: str, rng: np.random.Generator) -> str:
    """A text of JSON with another number in it; numbers are texts in those of skops."""
    schema = json.loads(text)
    places: list[tuple[Any, Any]] = []

    def collect(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(value, dict | list):
                collect(value)
            elif key == "content" and isinstance(value, str) and value.lstrip("-").isdigit():
                places.append((part, key))

    collect(schema)
    if places:
        part, key = places[rng.integers(len(places))]
        part[key] = str(rng.choice(NUMBERS))
    return json.dumps(schema)


def outcome(file: bytes) -> str:
    """What comes of reading a file and of predicting by what it holds."""
    try:
        estimator = estimator_files.read(file, {})
    except Exception as error:  # whatever it is, `load` makes one of its own of it
        return f"refused {type(error).__name__}"
    try:
        estimator.predict(np.vstack([X, 1e6 * X, np.zeros((1, 3))]))
    except Exception as error:  # an error of Python's is no crash
        return f"failed {type(error).__name__}"
    return "predicted"


def main(count: int) -> None:
    """Print a line for each of as many changed files of each estimator."""
    for name in ESTIMATORS:
        original = content(fitted(name))
        for seed in range(count):
            signal.alarm(30)  # which ends a process that does not return from compiled code
            found = outcome(changed(original, np.random.default_rng(seed)))
            print(f"file {seed} of {name}: {found}", flush=True)
    signal.alarm(0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]))

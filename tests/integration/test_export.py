"""What is exported predicts the same in a process that can import neither GPflow nor this package.

All cases are predicted in one such process, as TensorFlow is slow to start.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
from gpflow import likelihoods
from gpflow.kernels import SquaredExponential

import gpflow_gvi as gvi
from gpflow_gvi.kernels import nngp
from gpflow_gvi.learning import Learned
from gpflow_gvi.learning.rows.scaling import Scaling
from tests import networks
from tests.tolerances import assert_close

N, M, D = 20, 5, 2
IMAGE = (4, 3, 2)
ROWS = (7, 1, 0)
FORBIDDEN = ("gpflow", "gpflow_gvi", "gpflux", "tensorflow_probability")

READER = f"""
import pathlib, sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN!r}:
            raise ImportError(name + " is not to be imported")

sys.meta_path.insert(0, Forbid())
import numpy as np
import tensorflow as tf

folder = pathlib.Path(sys.argv[1])
for case in sorted(folder.glob("*.npz")):
    with np.load(case) as arrays:
        X = arrays["X"]
    predict = tf.saved_model.load(str(case.with_suffix(""))).signatures["predict"]
    found = {{
        f"{{rows}} {{name}}": value.numpy()
        for rows in {ROWS!r}
        for name, value in predict(X=tf.constant(X[:rows])).items()
    }}
    np.savez(case, X=X, **found)
assert not set(sys.modules) & set({FORBIDDEN!r})
"""


def pixels(rng: np.random.Generator, rows: int = N) -> np.ndarray:
    return rng.uniform(size=(rows, *IMAGE))


def numbers(rng: np.random.Generator, rows: int = N) -> np.ndarray:
    return rng.normal(size=(rows, D)).astype(gpflow.default_float())


def model(
    network: Any = None,
    likelihood: likelihoods.Likelihood | None = None,
    J: int = 1,
    kernel: gpflow.kernels.Kernel | None = None,
    covariance: type = gvi.covariances.CholeskySVGP,
    draw: Callable[..., np.ndarray] = numbers,
) -> gvi.models.GVI:
    rng = np.random.default_rng(0)
    k = SquaredExponential() if kernel is None else kernel
    Z = draw(rng, M)
    mean = gvi.mean_functions.Inducing(k, Z, q_mu=rng.normal(size=(M, J)))
    if network is not None:
        mean = gvi.mean_functions.Network(network)
    return gvi.models.PGVI(
        gvi.GaussianProcess(gpflow.functions.Zero(J), k),
        gvi.GaussianProcess(mean, covariance(k, Z, num_latent_gps=J)),
        likelihoods.Gaussian(0.1) if likelihood is None else likelihood,
        num_data=N,
    )


def tempered() -> gvi.models.GVI:
    rng = np.random.default_rng(1)
    fitted = model(covariance=gvi.covariances.SparsePosterior)
    return gvi.temper(fitted, (numbers(rng), rng.normal(size=(N, 1))))


def learned(fitted: gvi.models.GVI, J: int) -> Learned:
    """Return a model with units as `learn` returns it."""
    rng = np.random.default_rng(2)
    X, Y = 3.0 + 2.0 * numbers(rng), 100.0 * rng.normal(size=(N, J)) - 50.0
    outputs = Scaling.of(Y) if isinstance(fitted.likelihood, likelihoods.Gaussian) else None
    return Learned(fitted, None, Scaling.of(X), outputs or Scaling.none(Y), {})


def conditioned() -> gvi.models.GVI:
    """Return a model whose Q is an exact posterior, without inducing points."""
    rng = np.random.default_rng(3)
    P = gvi.GaussianProcess(gpflow.functions.Zero(), SquaredExponential())
    Q = P.condition(numbers(rng), rng.normal(size=(N, 1)), 0.1)
    return gvi.models.GWI(P, Q, likelihoods.Gaussian(0.1), num_data=N)


def cnn() -> Any:
    return keras.Sequential(
        [
            keras.Input(IMAGE, dtype="float64"),
            keras.layers.Conv2D(2, 2, dtype="float64"),
            keras.layers.Flatten(dtype="float64"),
            keras.layers.Dense(1, dtype="float64"),
        ]
    )


CASES: dict[str, Callable[[], Any]] = {
    "keras": lambda: model(networks.regularised(keras)),
    "tempered": tempered,
    "conditioned": conditioned,
    "nngp": lambda: model(kernel=gvi.kernels.NNGP([nngp.Dense(), nngp.ReLU(), nngp.Dense()])),
    "two_outputs": lambda: model(J=2, likelihood=likelihoods.StudentT(0.5)),
    "labels": lambda: model(J=2, likelihood=likelihoods.Bernoulli()),
    "bernoulli": lambda: model(likelihood=likelihoods.Bernoulli()),
    "multiclass": lambda: model(J=3, likelihood=likelihoods.MultiClass(3)),
    "softmax": lambda: model(J=3, likelihood=likelihoods.Softmax(3)),
    "images": lambda: model(cnn(), draw=pixels),
    "learned": lambda: learned(tempered(), 1),
    "learned_classes": lambda: learned(model(J=3, likelihood=likelihoods.Softmax(3)), 1),
    "float32": lambda: learned(model(networks.dense(keras, dtype="float32")), 1),
}
SLOW = (
    *("keras", "tempered", "conditioned", "nngp"),
    *("two_outputs", "labels", "bernoulli", "multiclass", "softmax"),
)
"""What differs little from the others: "learned" is tempered, and "images" has a network."""

OF_CLASSES = ("bernoulli", "multiclass", "softmax", "learned_classes")


class _Float32:
    """GPflow's default float, for a while."""

    def __enter__(self) -> None:
        gpflow.config.set_default_float(np.float32)

    def __exit__(self, *_: object) -> None:
        gpflow.config.set_default_float(np.float64)


@pytest.fixture(scope="module")
def predictions(request, tmp_path_factory):
    """Return, for each case, what is predicted here and there."""
    folder = tmp_path_factory.mktemp("exported")
    here = {}
    asked = (item for item in request.session.items if item.path == request.path)
    names = {
        item.callspec.params["name"]
        for item in asked
        if "predictions" in item.fixturenames and not item.get_closest_marker("skip")
    }
    cases = {name: make for name, make in CASES.items() if name in names}
    for name, make in cases.items():
        rng = np.random.default_rng(4)
        if name == "float32":
            with _Float32():
                here[name] = _predicted_and_exported(name, make, numbers(rng, 7), folder)
        else:
            X = pixels(rng, 7) if name == "images" else numbers(rng, 7)
            here[name] = _predicted_and_exported(name, make, X, folder)
    done = subprocess.run(
        [sys.executable, "-c", READER, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    there = {name: dict(np.load(folder / f"{name}.npz")) for name in cases}
    return here, there


def _predicted_and_exported(name, make, X, folder):
    thing = make()
    gvi.export(thing, folder / name)
    np.savez(folder / f"{name}.npz", X=X)
    result = dict(zip(("f_mean", "f_variance"), thing.predict_f(X), strict=True))
    if name in OF_CLASSES:
        result["probabilities"] = gvi.classification.class_probabilities(thing, X)
    else:
        result |= dict(zip(("mean", "variance"), thing.predict_y(X), strict=True))
    return {key: np.asarray(value) for key, value in result.items()}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES],
)
def test_predicts_the_same_where_gpflow_is_not(name, predictions):
    here, there = (of[name] for of in predictions)
    assert {key.partition(" ")[2] for key in there} - {""} == here.keys()
    # Networks of float32 round in another order where a graph joins their operations.
    coarse = name in ("keras", "float32")
    for key, expected in here.items():
        for rows in ROWS:
            found = there[f"{rows} {key}"]
            assert found.dtype == expected.dtype
            assert found.shape == (rows, *expected.shape[1:])
            scale = np.abs(expected).max()
            precision = np.float32 if coarse else np.float64
            assert_close(found, expected[:rows], scale=scale, precision=precision)


def test_a_folder_in_use_is_not_overwritten(tmp_path):
    """And inputs are of any number of rows, in the precision of the model."""
    folder = tmp_path / "exported"
    gvi.export(model(), folder)
    loaded = tf.saved_model.load(str(folder))
    assert loaded.signatures.keys() == {"predict", "serving_default"}
    _, signature = loaded.signatures["predict"].structured_input_signature
    assert signature["X"].shape.as_list() == [None, D]
    assert signature["X"].dtype == tf.float64
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        gvi.export(model(), folder)
    gvi.export(model(J=2), folder, overwrite=True)
    loaded = tf.saved_model.load(str(folder))
    assert loaded.predict(tf.zeros([3, D], tf.float64))["mean"].shape == (3, 2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="choose another one"):
            gvi.export(model(), tmp_path / "mine", overwrite=overwrite)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exported", "mine"]


def test_what_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        gvi.export(model(), tmp_path / "exported")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"model is .*must be a GVI"):
        gvi.export(SquaredExponential(), tmp_path / "exported")
    k = SquaredExponential()
    plain = gvi.models.PGVI(
        gvi.GaussianProcess(gpflow.functions.Zero(), k),
        gvi.GaussianProcess(gpflow.functions.Zero(), SquaredExponential()),
        likelihoods.Gaussian(0.1),
        num_data=N,
    )
    with pytest.raises(ValueError, match=r"pass input_shape=\(D,\)"):
        gvi.export(plain, tmp_path / "exported")
    gvi.export(plain, tmp_path / "exported", input_shape=(D,))

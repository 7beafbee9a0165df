"""A folder can name what belongs to models and nothing else: no other class, no code."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import zipfile

import gpflow
import keras
import numpy as np
import pytest
import tensorflow_probability as tfp

from gpflow_gvi.saving import load, save
from tests import networks

from .things import Knot, Point, there_and_back

tfd = tfp.distributions


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of parts of every kind: a class, a distribution, a function, a network."""
    folder = tmp_path_factory.mktemp("parts") / "saved"
    parts = [
        gpflow.kernels.Matern12(lengthscales=[1.0, 2.0]),
        gpflow.likelihoods.Bernoulli(),
        gpflow.likelihoods.HeteroskedasticTFPConditional(tfd.Laplace),
        networks.dense(keras),
    ]
    save(parts, folder)
    return folder


@pytest.fixture
def edited(saved, tmp_path):
    """Return a copy of the folder in whose structure a piece of text is another one."""

    def edit(old, new):
        folder = tmp_path / "saved"
        shutil.copytree(saved, folder)
        file = folder / "structure.json"
        text = file.read_text("utf-8")
        assert old in text
        file.write_text(text.replace(old, new), "utf-8")
        return folder

    return edit


MATERN = '"class": "gpflow.kernels.stationaries:Matern12"'
SOFTPLUS = '"class": "tensorflow_probability.python.bijectors.softplus:Softplus"'
LAPLACE = '"value": "tensorflow_probability.python.distributions.laplace:Laplace"'
FUNCTION = '"value": "gpflow.likelihoods.utils:inv_probit"'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MATERN, '"class": "os:system"'),
        (MATERN, '"class": "subprocess:Popen"'),
        (MATERN, '"class": "builtins:eval"'),
        (MATERN, '"class": "tensorflow:Module"'),
        (MATERN, '"class": "gpflow_gvi.saving.model_folder:os.system"'),
        (MATERN, '"class": "gpflow_gvi.saving.model_folder:Path"'),
        (MATERN, '"class": "gpflow.likelihoods.utils:inv_probit"'),
        (MATERN, '"class": "gpflow..os:system"'),
        (MATERN, '"class": "gpflow_gvi"'),
        (MATERN, '"class": "gpflow.kernels.stationaries:Matern999"'),
        (SOFTPLUS, '"class": "gpflow_gvi.training.backup:Backup"'),
        (SOFTPLUS, '"class": "gpflow_gvi.training.backup:write_arrays"'),
        (LAPLACE, '"value": "gpflow_gvi.training.backup:write_arrays"'),
        (FUNCTION, '"value": "os:system"'),
        (FUNCTION, '"value": "builtins:exec"'),
        (FUNCTION, '"value": "tensorflow:py_function"'),
        (FUNCTION, '"value": "tensorflow.io:write_file"'),
        (FUNCTION, '"value": "tensorflow.python.ops.script_ops:numpy_function"'),
        (FUNCTION, '"value": "gpflow_gvi.saving.keras_files:builtins.eval"'),
        (FUNCTION, '"value": "tensorflow.math:py_function"'),
        ('"class": "slice"', '"class": "restored"'),
        ('"class": "slice"', '"class": "os:system"'),
        (FUNCTION, '"value": "tensorflow.nn:__builtins__"'),
        (FUNCTION, '"value": "tensorflow.math:__dict__"'),
        (MATERN, '"class": "tensorflow_probability.python.util.deferred_tensor:DeferredTensor"'),
        ('"_name": "matern12"', '"__call__": "matern12"'),
        ('"file": "networks/1.keras"', '"file": "networks/../1.keras"'),
    ],
)
def test_names_that_are_not_let_in(old, new, edited, monkeypatch):
    folder = edited(old, new)
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("it was called"))
    with pytest.raises(ValueError, match=r"may not be|must be"):
        load(folder)


@pytest.mark.parametrize("old", [MATERN, SOFTPLUS, FUNCTION])
def test_no_other_module_is_imported(old, edited, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "intruder.py").write_text("class Intruder: pass\n")
    key = old.split(":")[0]
    folder = edited(old, f'{key}: "intruder:Intruder"')
    with pytest.raises(ValueError, match="intruder:Intruder may not be used"):
        load(folder)
    assert "intruder" not in sys.modules


def rewritten(file, change):
    """Change the configuration inside a `.keras` file."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["config.json"] = change(parts["config.json"].decode()).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def forged(folder, network, change):
    """A saved network that was changed together with the sums that would tell of it."""
    save(network, folder / "saved")
    rewritten(folder / "saved" / "networks" / "1.keras", change)
    file = folder / "saved" / "structure.json"
    structure = json.loads(file.read_text())
    content = (folder / "saved" / "networks" / "1.keras").read_bytes()
    structure["files"]["networks/1.keras"] = hashlib.sha256(content).hexdigest()
    file.write_text(json.dumps(structure))
    return folder / "saved"


@pytest.mark.parametrize(
    "intruder",
    [
        '"module": "intruder", "class_name": "Act"',
        '"module": "builtins", "class_name": "function", "config": "eval"',
    ],
)
def test_networks_import_no_other_module(intruder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "intruder.py").write_text("class Act: pass\n")

    def change(text):
        config = json.loads(text)
        return json.dumps(config | json.loads(f"{{{intruder}}}"))

    folder = forged(tmp_path, networks.dense(keras), change)
    with pytest.raises(ValueError, match=r"may not be used.*custom_objects"):
        load(folder)
    assert "intruder" not in sys.modules


def test_registered_layers_are_asked_for(tmp_path):
    """Any imported package registers classes with Keras; the caller names those to be built."""

    @keras.saving.register_keras_serializable(package="tests")
    class Twice(keras.layers.Layer):
        def call(self, inputs):
            return 2.0 * inputs

    save(keras.Sequential([keras.Input((2,)), Twice(), keras.layers.Dense(1)]), tmp_path / "saved")
    with pytest.raises(ValueError, match=r"Twice.*custom_objects=\{'Twice': Twice\}"):
        load(tmp_path / "saved")
    loaded = load(tmp_path / "saved", custom_objects={"Twice": Twice})
    assert type(loaded.layers[0]) is Twice


def test_networks_with_operations_and_options_are_let_in(tmp_path):
    """What the lists have is found where Keras says that it is."""
    inputs = keras.Input((4, 4, 1))
    X = keras.layers.Conv2D(2, 2, activation="relu", kernel_regularizer="l2")(inputs)
    X = keras.layers.BatchNormalization()(keras.layers.SpatialDropout2D(0.1)(X))
    X = keras.layers.Flatten()(X)
    X = keras.layers.LeakyReLU()(2.0 * X + X[:, :1])
    X = keras.layers.Reshape((1, -1))(X)
    X = keras.layers.Bidirectional(keras.layers.GRU(2))(X)
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, keras.activations.gelu)])
    inner.compile("adam", "mse")
    network = keras.Model(inputs, inner(X))
    save(network, tmp_path / "saved")
    points = np.linspace(0.0, 1.0, 32).reshape(2, 4, 4, 1)
    expected = network(points, training=False)
    loaded = load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded(points, training=False), expected)


def test_custom_objects_are_asked_for(tmp_path):
    save([Point(1.0, np.ones(1)), Knot()], tmp_path / "saved")
    with pytest.raises(ValueError, match=r"Point.*custom_objects=\{'Point': Point\}"):
        load(tmp_path / "saved")
    own = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in (Point, Knot)}
    assert type(load(tmp_path / "saved", custom_objects=own)[1]) is Knot


def test_custom_objects_do_not_hide_those_of_packages(tmp_path):
    loaded = there_and_back(gpflow.kernels.Matern12(), tmp_path, custom_objects={"Matern12": Knot})
    assert type(loaded) is gpflow.kernels.Matern12

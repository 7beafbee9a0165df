"""What is saved comes back, what cannot be saved is named, and what is no model is kept out."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import threading
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tf_keras

import gpflow_gvi as gvi
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.kernels.feature_map import FeatureMap
from gpflow_gvi.serialisation import load, save
from tests import networks

tfb, tfd = tfp.bijectors, tfp.distributions


def there_and_back(thing, folder, **options):
    save(thing, folder / "saved")
    return load(folder / "saved", **options)


# Values.

PLAIN = {
    "nothing": None,
    "numbers": [True, 7, -(10**30), 0.1, 1e-320, -0.0],
    "infinite": (math.inf, -math.inf),
    "text": "σ² \n \"quoted\" 'both' /..",
    "nested": {"a": [(1, (2,)), []], 3: {}, (4, "b"): None},
    "sets": ({1, 2}, frozenset({"x"})),
    "slices": [slice(None), slice(1, None, 2)],
    "types": [np.float32, np.dtype("int8"), tf.float64, tf.TensorShape([2, None])],
    "unknown rank": tf.TensorShape(None),
    "enum": gpflow.base.PriorOn.UNCONSTRAINED,
    "functions": [gpflow.likelihoods.utils.inv_probit, tf.exp, tf.nn.softplus],
    "classes": [gpflow.kernels.Matern32, tfd.Normal],
}


def test_plain_values(tmp_path):
    loaded = there_and_back(PLAIN, tmp_path)
    assert repr(loaded) == repr(PLAIN)
    assert loaded["functions"] == PLAIN["functions"]
    assert loaded["classes"] == PLAIN["classes"]
    assert [type(part) for part in loaded["types"]] == [type(part) for part in PLAIN["types"]]
    assert math.isnan(there_and_back(math.nan, tmp_path / "nan"))


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, np.nan, -np.inf]]),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.array(3),
        np.zeros([0, 4], dtype=bool),
        np.array([1 + 2j]),
        np.array(["ä", "bc"]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.float64(0.1),
        np.str_("text"),
    ],
    ids=lambda array: f"{type(array).__name__}-{array.dtype}",
)
def test_arrays_and_scalars(array, tmp_path):
    loaded = there_and_back(array, tmp_path)
    assert type(loaded) is type(array)
    assert loaded.dtype == array.dtype
    assert loaded.shape == array.shape
    assert loaded.tobytes() == array.tobytes()


def test_arrays_at_places_of_equal_names_stay_apart(tmp_path):
    class Same:
        """A key that looks like every other."""

        def __repr__(self):
            return "same"

    thing = {Same(): np.array(1.0), Same(): np.array(2.0)}
    assert list(there_and_back(thing, tmp_path, custom_objects={"Same": Same}).values()) == [1, 2]


def test_tensors_and_variables(tmp_path):
    things = [
        tf.constant([1, 2], dtype=tf.int32),
        tf.Variable(np.zeros([0, 3]), shape=[None, 3], name="growing"),
        tf.Variable(2, trainable=False),
        tf.Variable(1.5, shape=tf.TensorShape(None)),
    ]
    tensor, growing, count, shapeless = there_and_back(things, tmp_path)
    assert isinstance(tensor, tf.Tensor)
    assert tensor.dtype == tf.int32
    assert tensor.numpy().tolist() == [1, 2]
    assert growing.name == "growing:0"
    assert growing.trainable
    growing.assign(np.ones([5, 3]))
    assert not count.trainable
    assert count.dtype == tf.int32
    assert int(count) == 2
    assert shapeless.shape.rank is None


TRANSFORMS = {
    "none": None,
    "softplus": gpflow.utilities.positive(),
    "shifted": gpflow.utilities.positive(1e-3),
    "exp": gpflow.utilities.positive(base="exp"),
    "sigmoid": tfb.Sigmoid(tf.constant(-1.0, tf.float64), tf.constant(2.0, tf.float64)),
    "chain": tfb.Chain([tfb.Scale(tf.constant(3.0, tf.float64)), tfb.Softplus()]),
    "inverse": tfb.Invert(tfb.Exp()),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, np.float64) for name in TRANSFORMS), ("none", np.float32), ("exp", np.float32)],
)
def test_parameters(name, dtype, tmp_path):
    parameter = gpflow.Parameter(
        np.array([0.3, 1.7], dtype=dtype), transform=TRANSFORMS[name], dtype=dtype, trainable=False
    )
    loaded = there_and_back(parameter, tmp_path)
    assert type(loaded) is gpflow.Parameter
    assert loaded.dtype == parameter.dtype
    assert loaded.name == parameter.name
    assert not loaded.trainable
    before, after = (p.unconstrained_variable.numpy().tobytes() for p in (parameter, loaded))
    assert after == before
    assert loaded.numpy().tobytes() == parameter.numpy().tobytes()
    assert type(loaded.transform) is type(parameter.transform)


def test_triangular_parameters_of_growing_shape(tmp_path):
    factor = np.linalg.cholesky(np.array([[[2.0, 0.3], [0.3, 1.0]]]))
    parameter = gpflow.Parameter(
        factor,
        transform=gpflow.utilities.triangular(),
        unconstrained_shape=[1, None],
        constrained_shape=[1, None, None],
        name="mine",
    )
    loaded = there_and_back(parameter, tmp_path)
    assert loaded.name == "mine"
    np.testing.assert_array_equal(loaded, factor)
    assert loaded.shape.as_list() == [1, None, None]
    assert loaded.unconstrained_variable.shape.as_list() == [1, None]
    loaded.assign(np.eye(3)[None])


def test_a_parameter_at_the_end_of_its_range(tmp_path):
    # The inverse of the transform is infinite there, so a way through it would fail.
    parameter = gpflow.Parameter(0.5, transform=TRANSFORMS["sigmoid"])
    parameter.unconstrained_variable.assign(800.0)
    loaded = there_and_back(parameter, tmp_path)
    assert float(loaded.unconstrained_variable) == 800.0
    assert loaded.numpy() == 2.0


@pytest.mark.parametrize("prior_on", gpflow.base.PriorOn)
def test_priors(prior_on, tmp_path):
    f64 = gpflow.utilities.to_default_float
    for i, prior in enumerate(
        (
            tfd.Gamma(f64(2.0), f64(3.0)),
            tfd.TransformedDistribution(tfd.Normal(f64(0.1), f64(0.2)), tfb.Exp()),
            tfd.MixtureSameFamily(
                tfd.Categorical(probs=f64([0.3, 0.7])), tfd.Normal(f64([0.0, 1.0]), f64([1.0, 2.0]))
            ),
        )
    ):
        parameter = gpflow.Parameter(
            0.7, transform=gpflow.utilities.positive(), prior=prior, prior_on=prior_on
        )
        loaded = there_and_back(parameter, tmp_path / str(i))
        assert loaded.prior_on is prior_on
        assert float(loaded.log_prior_density()) == float(parameter.log_prior_density())


# Objects.


class Point(NamedTuple):
    x: float
    y: np.ndarray


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: np.ndarray
    kernel: gpflow.kernels.Kernel


class Slotted:
    __slots__ = ("one", "two")


class Stateful:
    """Keeps a part to itself, as `pickle` and `copy` let it."""

    def __init__(self, value):
        self.value = value
        self.lock = threading.Lock()

    def __getstate__(self):
        return {"value": self.value}

    def __setstate__(self, state):
        self.__init__(state["value"])


class Fresh:
    """Has a state that is made when it is asked for, and gone when it was seen."""

    def __init__(self, value):
        self.value = value

    def __getstate__(self):
        return {"value": slice(self.value)}


class Knot(tf.Module):
    """A module that knows its parent."""

    def __init__(self, parent=None):
        super().__init__(name="knot_of_mine")
        self.parent = parent
        self.children = [] if parent else [Knot(self), Knot(self)]
        self.by_name = {"first": self.children[0]} if self.children else {}
        self.compiled = tf.function(lambda: 1)

    @tf.Module.with_name_scope
    def make(self):
        return tf.Variable(1.0, name="made")


def plain_function(X):
    return X[:, :1] + 1.0


OWN = {
    kind.__name__: kind
    for kind in (Point, Frozen, Slotted, Stateful, Fresh, Knot, networks.Perceptron)
} | {"plain_function": plain_function}


def test_objects_of_all_kinds(tmp_path):
    slotted = Slotted()
    slotted.one = np.arange(3)
    kernel = gpflow.kernels.Matern12()
    things = [Point(1.5, np.ones(2)), Frozen(np.ones(1), kernel), slotted, Stateful(kernel)]
    point, frozen, slotted, stateful = there_and_back(things, tmp_path, custom_objects=OWN)
    assert type(point) is Point
    assert (point.x, point.y.tolist()) == (1.5, [1.0, 1.0])
    assert type(frozen) is Frozen
    assert frozen.kernel is stateful.value
    assert frozen.scale.tolist() == [1.0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.scale = None
    assert slotted.one.tolist() == [0, 1, 2]
    assert not hasattr(slotted, "two")
    assert stateful.lock.acquire(blocking=False)


def test_states_that_live_for_a_moment_are_not_confused(tmp_path):
    loaded = there_and_back([Fresh(i) for i in range(20)], tmp_path, custom_objects=OWN)
    assert [part.value.stop for part in loaded] == list(range(20))


def test_modules_that_refer_to_each_other(tmp_path):
    knot = there_and_back(Knot(), tmp_path, custom_objects=OWN)
    assert [child.parent is knot for child in knot.children] == [True, True]
    assert knot.by_name["first"] is knot.children[0]
    assert knot.children[0] is not knot.children[1]
    assert knot.submodules == tuple(knot.children)
    assert type(knot.children) is type(Knot().children)  # TensorFlow's own, which it tracks
    assert knot.make().name == "knot_of_mine/made:0"
    assert not hasattr(knot, "compiled")


def test_lists_that_contain_themselves(tmp_path):
    thing = [1]
    thing.append({"again": thing})
    loaded = there_and_back(thing, tmp_path)
    assert loaded[1]["again"] is loaded


def test_what_is_one_stays_one_and_what_are_two_stay_two(tmp_path):
    variable, array = tf.Variable(1.0), np.ones(2)
    parameter = gpflow.Parameter(1.0, transform=gpflow.utilities.positive())
    things = [variable, tf.Variable(1.0), variable, array, array.copy(), array]
    things += [parameter, gpflow.Parameter(1.0), parameter, parameter.unconstrained_variable]
    loaded = there_and_back(things, tmp_path)
    first = [[a is b for b in things].index(True) for a in things]
    assert [[a is b for b in loaded].index(True) for a in loaded] == first
    assert loaded[6].unconstrained_variable is loaded[9]


def test_what_a_class_leaves_out_of_copies(tmp_path):
    kernel = gpflow.kernels.Matern12()
    process = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    model = gvi.models.PGVI(process, process, gpflow.likelihoods.Gaussian(), num_data=3)
    model.compile("sgd")
    loaded = there_and_back(model, tmp_path)
    with pytest.raises(RuntimeError, match="compile"):
        loaded.fit((np.zeros([3, 1]), np.zeros([3, 1])))
    assert loaded.regulariser.kernel is loaded.variational.kernel


def test_float32(tmp_path):
    gpflow.config.set_default_float(np.float32)
    try:
        kernel = gpflow.kernels.Matern12(lengthscales=0.3)
        save(kernel, tmp_path / "saved")
        loaded = load(tmp_path / "saved")
        assert loaded.lengthscales.dtype == tf.float32
    finally:
        gpflow.config.set_default_float(np.float64)
    with pytest.raises(ValueError, match=r"saved in float32.*set_default_float\(np.float32\)"):
        load(tmp_path / "saved")


def test_another_jitter_is_told(tmp_path):
    save([1], tmp_path / "saved")
    with gpflow.config.as_context():
        gpflow.config.set_default_jitter(1e-5)
        with pytest.warns(NumericsWarning, match=r"set_default_jitter\(1e-06\)"):
            load(tmp_path / "saved")


# Networks.


@pytest.mark.parametrize("package", networks.KERAS)
def test_networks(package, tmp_path, rng):
    K = networks.KERAS[package]
    network, X = networks.regularised(K), rng.normal(size=(5, 2)).astype(np.float32)
    for _ in range(3):
        network(X, training=True)  # moves the statistics
    first, second, other = there_and_back([network, network, networks.dense(K)], tmp_path)
    assert first is second
    assert type(first) is type(network)
    np.testing.assert_array_equal(first(X), network(X))
    assert not np.allclose(first(X), first(X, training=True))
    assert not set(map(id, other.weights)) & set(map(id, first.weights))


@pytest.mark.parametrize("package", networks.KERAS)
@pytest.mark.parametrize("frozen", [False, True])
def test_networks_as_functions(package, frozen, tmp_path, rng):
    K, X = networks.KERAS[package], rng.normal(size=(5, 2))
    network = networks.regularised(K, F=2)
    network.layers[0].trainable = False
    mean = gvi.mean_functions.Network(network)
    kernel = FeatureMap(gpflow.kernels.Matern12(), mean.network)
    if frozen:
        gpflow.set_trainable(mean, False)
    loaded_mean, loaded_kernel = there_and_back((mean, kernel), tmp_path)
    assert loaded_mean.network is loaded_kernel.network
    assert list(loaded_mean.network.weights) == list(mean.network.weights)
    trainable = {name: w.trainable for name, w in loaded_mean.network.weights.items()}
    assert trainable == {name: w.trainable for name, w in mean.network.weights.items()}
    assert trainable == dict.fromkeys(trainable, not frozen)
    np.testing.assert_array_equal(loaded_mean(X), mean(X))
    np.testing.assert_array_equal(loaded_kernel(X), kernel(X))


@pytest.mark.parametrize("package", networks.KERAS)
def test_single_layers_inside_a_module(package, tmp_path, rng):
    module = networks.Mixed(networks.KERAS[package])
    X = rng.normal(size=(5, 2))
    value = module(X)
    loaded = there_and_back(module, tmp_path, custom_objects={"Mixed": networks.Mixed})
    np.testing.assert_array_equal(loaded(X), value)
    assert len(loaded.layers[0].weights) == 2


def test_networks_of_the_user(tmp_path, rng):
    X = rng.normal(size=(5, 2))
    module = gvi.mean_functions.Network(networks.Perceptron())
    function = gvi.mean_functions.Network(plain_function)
    loaded = there_and_back([module, function], tmp_path, custom_objects=OWN)
    for before, after in zip([module, function], loaded, strict=True):
        np.testing.assert_array_equal(after(X), before(X))
    assert len(loaded[0].trainable_variables) == 2


@pytest.mark.parametrize("package", networks.KERAS)
def test_layers_of_the_user(package, tmp_path, rng):
    K = networks.KERAS[package]

    class Doubled(K.layers.Layer):
        def call(self, X):
            return 2.0 * X

    network = K.Sequential([K.Input((2,)), Doubled(), K.layers.Dense(1)])
    X = rng.normal(size=(5, 2)).astype(np.float32)
    save(network, tmp_path / "saved")
    loaded = load(tmp_path / "saved", custom_objects={"Doubled": Doubled})
    np.testing.assert_array_equal(loaded(X), network(X))
    with pytest.raises(ValueError, match=r"(?s)custom_objects.*Doubled|Doubled.*custom_objects"):
        load(tmp_path / "saved")


def test_operations_of_tensorflow_as_layers(tmp_path, rng):
    inputs = tf_keras.Input((2,))
    network = tf_keras.Model(inputs, tf.concat([tf.exp(inputs) + 1.0, inputs], -1))
    X = rng.normal(size=(5, 2)).astype(np.float32)
    np.testing.assert_array_equal(there_and_back(network, tmp_path)(X), network(X))


# What cannot be saved.


def with_lambda(K):
    return K.Sequential([K.Input((2,)), K.layers.Lambda(lambda X: X + 1.0)])


def two_with_a_layer_in_common():
    common = keras.layers.Dense(2)
    return [keras.Sequential([keras.Input((2,)), common]) for _ in range(2)]


def quantised_model():
    inputs = tf_keras.Input((2,))
    return tf_keras.Model(inputs, tf.quantization.fake_quant_with_min_max_args(inputs))


def model_of(mean_function):
    kernel = gpflow.kernels.Matern12()
    P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    Q = gvi.GaussianProcess(mean_function, kernel)
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(), num_data=3)


class Count(int):
    """A number with a name."""


ANONYMOUS = [lambda X: X]

UNSAVABLE = {
    "lambda of a module": (lambda: ANONYMOUS, r"list\[0\].*<lambda>.*no name leads to it"),
    "hidden function": (
        lambda: [gvi.losses.log_power_integral.dispatch(gpflow.likelihoods.Gaussian)],
        r"list\[0\].*function '_'.*no name leads to it",
    ),
    "number": (lambda: [Count(5)], r"list\[0\].*Count.*more than its attributes"),
    "lambda": (
        lambda: model_of(gvi.mean_functions.Network(lambda X: X)),
        r"PGVI\.variational\.mean_function\.network\.network.*<lambda>.*Keras.*custom_objects",
    ),
    "keras lambda": (
        lambda: model_of(gvi.mean_functions.Network(with_lambda(keras))),
        r"PGVI\.variational\.mean_function\.network\.network .*Sequential.*lambda",
    ),
    "tf_keras lambda": (lambda: [with_lambda(tf_keras)], r"list\[0\].*lambda"),
    "layers in common": (two_with_a_layer_in_common, r"list\[1\].*shares layers with list\[0\]"),
    "operation": (lambda: [quantised_model()], r"list\[0\].*tf\.quantization"),
    "layer": (lambda: [tf_keras.layers.Dense(2)], r"list\[0\].*no weights yet"),
    "optimiser": (lambda: [keras.optimizers.Adam()], r"list\[0\].*Adam"),
    "dataset": (lambda: [tf.data.Dataset.range(3)], r"list\[0\].*Dataset"),
    "lock": (lambda: {"a": threading.Lock()}, r"dict\['a'\].*lock.*Remove it"),
    "generator": (lambda: [i for i in [(j for j in [1])]], r"list\[0\].*generator"),
    "module": (lambda: [math], r"list\[0\].*module"),
    "method": (lambda: [gpflow.kernels.Matern12().K], r"list\[0\].*method"),
    "path": (lambda: [Path("x")], r"list\[0\].*Path"),
    "ordered": (lambda: [OrderedDict(a=1)], r"list\[0\].*OrderedDict.*own containers"),
    "objects": (lambda: [np.array([None])], r"list\[0\].*dtype is object"),
    "strings": (lambda: [tf.constant("a")], r"list\[0\].*dtype is object"),
    "masked": (lambda: [np.ma.array([1], mask=[1])], r"list\[0\].*MaskedArray"),
    "bfloat16": (lambda: [tf.zeros([1], tf.bfloat16)], r"list\[0\].*dtype is bfloat16"),
    "posterior": (
        lambda: [model_of(gpflow.functions.Zero()).posterior()],
        r"list\[0\].*GVIPosterior.*call its posterior\(\) again",
    ),
}


@pytest.mark.parametrize("name", UNSAVABLE)
def test_what_cannot_be_saved_is_named_and_leaves_nothing(name, tmp_path):
    make, message = UNSAVABLE[name]
    with pytest.raises(TypeError, match=f"(?s){message}"):
        save(make(), tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_inside_a_graph(tmp_path):
    with pytest.raises(TypeError, match="belongs to a graph"):
        tf.function(lambda x: save([x], tmp_path / "saved"), autograph=False)(tf.constant(1.0))


# What is not let in.


def edited(folder, old, new):
    """A saved kernel in whose structure a piece of text is another one."""
    kernel = gpflow.kernels.Matern12(lengthscales=[1.0, 2.0])
    parts = [
        gpflow.likelihoods.Bernoulli(),
        gpflow.likelihoods.HeteroskedasticTFPConditional(tfd.Laplace),
        networks.dense(tf_keras),
    ]
    save([kernel, *parts], folder / "saved")
    file = folder / "saved" / "structure.json"
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")
    return folder / "saved"


MATERN = '"class": "gpflow.kernels.stationaries:Matern12"'
SOFTPLUS = '"class": "tensorflow_probability.python.bijectors.softplus:Softplus"'
LAPLACE = '"distribution_class": "tensorflow_probability.python.distributions.laplace:Laplace"'
FUNCTION = '"name": "gpflow.likelihoods.utils:inv_probit"'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MATERN, '"class": "os:system"'),
        (MATERN, '"class": "subprocess:Popen"'),
        (MATERN, '"class": "builtins:eval"'),
        (MATERN, '"class": "tensorflow:Module"'),
        (MATERN, '"class": "gpflow_gvi.serialisation.folder:os.system"'),
        (MATERN, '"class": "gpflow_gvi.serialisation.folder:Path"'),
        (MATERN, '"class": "gpflow.likelihoods.utils:inv_probit"'),
        (MATERN, '"class": "gpflow..os:system"'),
        (MATERN, '"class": "gpflow_gvi"'),
        (MATERN, '"class": "gpflow.kernels.stationaries:Matern999"'),
        (SOFTPLUS, '"class": "gpflow_gvi.backup:Backup"'),
        (SOFTPLUS, '"class": "gpflow_gvi.backup:write_arrays"'),
        (LAPLACE, '"distribution_class": "gpflow_gvi.backup:write_arrays"'),
        (FUNCTION, '"name": "os:system"'),
        (FUNCTION, '"name": "builtins:exec"'),
        (FUNCTION, '"name": "tensorflow:py_function"'),
        (FUNCTION, '"name": "tensorflow.io:write_file"'),
        (FUNCTION, '"name": "tensorflow.python.ops.script_ops:numpy_function"'),
        (FUNCTION, '"name": "gpflow_gvi.serialisation.networks:builtins.eval"'),
        (FUNCTION, '"name": "tensorflow.math:py_function"'),
        ('"kind": "slice"', '"kind": "restored", "by": "gpflow_gvi.backup:write_arrays"'),
        ('"kind": "slice"', '"kind": "restored", "by": "os:system"'),
        ('"_name": "matern12"', '"__call__": "matern12"'),
        ('"file": "1.keras"', '"file": "../1.keras"'),
        ('"package": "tf_keras"', '"package": "os"'),
    ],
)
def test_names_that_are_not_let_in(old, new, tmp_path, monkeypatch):
    folder = edited(tmp_path, old, new)
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("it was called"))
    with pytest.raises(ValueError, match=r"may not be|must be"):
        load(folder)


@pytest.mark.parametrize("old", [MATERN, SOFTPLUS, FUNCTION])
def test_no_other_module_is_imported(old, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "intruder.py").write_text("class Intruder: pass\n")
    key = old.split(":")[0]
    folder = edited(tmp_path, old, f'{key}: "intruder:Intruder"')
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
    structure["files"] = {}
    file.write_text(json.dumps(structure))
    return folder / "saved"


@pytest.mark.parametrize(
    ("package", "message"),
    [("keras", "Keras does not know all of"), ("tf_keras", "is not of Keras")],
)
@pytest.mark.parametrize(
    "intruder",
    [
        '"module": "intruder", "class_name": "Act"',
        '"module": "builtins", "class_name": "function", "config": "eval"',
    ],
)
def test_networks_import_no_other_module(intruder, package, message, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "intruder.py").write_text("class Act: pass\n")

    def change(text):
        config = json.loads(text)
        return json.dumps(config | json.loads(f"{{{intruder}}}"))

    folder = forged(tmp_path, networks.dense(networks.KERAS[package]), change)
    with pytest.raises(ValueError, match=message):
        load(folder)
    assert "intruder" not in sys.modules


def test_networks_do_not_call_what_does_more_than_compute(tmp_path):
    inputs = tf_keras.Input((2,))
    network = tf_keras.Model(inputs, tf.exp(inputs))
    folder = forged(tmp_path, network, lambda text: text.replace("math.exp", "io.write_file"))
    with pytest.raises(ValueError, match=r"tf\.io\.write_file"):
        load(folder)


def test_custom_objects_are_asked_for(tmp_path):
    save([Point(1.0, np.ones(1)), Knot()], tmp_path / "saved")
    with pytest.raises(ValueError, match=r"Knot.*custom_objects=\{'Knot': Knot\}"):
        load(tmp_path / "saved")
    own = {f"{kind.__module__}:{kind.__qualname__}": kind for kind in (Point, Knot)}
    assert type(load(tmp_path / "saved", custom_objects=own)[1]) is Knot


def test_custom_objects_do_not_hide_those_of_packages(tmp_path):
    loaded = there_and_back(gpflow.kernels.Matern12(), tmp_path, custom_objects={"Matern12": Knot})
    assert type(loaded) is gpflow.kernels.Matern12


# Folders.


def test_what_is_in_the_folder(tmp_path):
    save({"kernel": gpflow.kernels.Matern12(), "net": networks.dense(keras)}, tmp_path / "saved")
    files = {path.relative_to(tmp_path / "saved").as_posix() for path in tmp_path.rglob("*.*")}
    assert files - {"."} == {"structure.json", "values.npz", "networks/1.keras"}
    with np.load(tmp_path / "saved" / "values.npz", allow_pickle=False) as values:
        assert all(isinstance(values[name], np.ndarray) for name in values)
        assert "dict['kernel'].lengthscales" in values
    structure = json.loads((tmp_path / "saved" / "structure.json").read_text("utf-8"))
    assert structure["format"] == 1
    assert structure["versions"]["gpflow"] == gpflow.__version__


def test_a_folder_in_use_is_not_overwritten(tmp_path):
    save("old", tmp_path / "saved")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save("new", tmp_path / "saved")
    assert load(tmp_path / "saved") == "old"
    save("new", tmp_path / "saved", overwrite=True)
    assert load(tmp_path / "saved") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_a_saved_model_is_never_replaced(overwrite, tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("precious")
    for name in ("file", "folder"):
        with pytest.raises(FileExistsError, match="choose another"):
            save("new", tmp_path / name, overwrite=overwrite)
    assert (tmp_path / "file").read_text() == "precious"
    assert (tmp_path / "folder" / "file").read_text() == "precious"


def test_an_empty_folder_and_one_that_is_missing_are_used(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", str(tmp_path / "far" / "away")):
        save("new", path)
        assert load(path) == "new"


class Killed(BaseException):
    """Stands for kill -9: nothing after it is done."""


def test_killed_at_any_moment_the_old_or_the_new_is_there(tmp_path, monkeypatch):
    """Stop before each of the calls that change the disk, and clean nothing up."""
    folder = tmp_path / "saved"
    save("old", folder)
    monkeypatch.setattr("gpflow_gvi.serialisation.folder.shutil.rmtree", real := Counted())
    for name in ("mkdir", "rename", "write_text", "open"):
        original = getattr(Path, name)
        monkeypatch.setattr(Path, name, real.stopping(original))
    found = set()
    for moment in range(1, 100):
        real.start(moment)
        try:
            save("new", folder, overwrite=True)
            finished = True
        except Killed:
            finished = False
        real.start(None)
        found.add(load(folder))
        if finished:
            break
        save("old", folder, overwrite=True)
        assert load(folder) == "old"
    assert finished
    assert moment > 5
    assert found == {"old", "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


class Counted:
    """Lets so many calls through and stops the next: of `shutil.rmtree` and of others."""

    def __init__(self):
        import shutil

        self.rmtree = shutil.rmtree
        self.start(None)

    def start(self, moment):
        self.left = math.inf if moment is None else moment
        self.dead = False

    def count(self):
        self.left -= 1
        self.dead = self.dead or self.left < 1
        if self.dead:
            raise Killed

    def __call__(self, path, **options):
        self.count()
        self.rmtree(path, **options)

    def stopping(self, original):
        def stopped(*args, **kwargs):
            self.count()
            return original(*args, **kwargs)

        return stopped


def test_an_error_in_the_middle_leaves_the_old(tmp_path):
    save("old", tmp_path / "saved")
    with pytest.raises(TypeError, match="lock"):
        save([np.ones(3), threading.Lock()], tmp_path / "saved", overwrite=True)
    assert load(tmp_path / "saved") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def damaged(change):
    def apply(folder):
        file = folder / "structure.json"
        structure = json.loads(file.read_text())
        change(structure)
        file.write_text(json.dumps(structure))

    return apply


DAMAGE = {
    "nothing there": (
        lambda folder: folder.rename(folder.with_name("elsewhere")),
        FileNotFoundError,
        "no saved model",
    ),
    "no structure": (
        lambda folder: (folder / "structure.json").unlink(),
        FileNotFoundError,
        "no structure.json",
    ),
    "no values": (
        lambda folder: (folder / "values.npz").unlink(),
        FileNotFoundError,
        "has lost values.npz",
    ),
    "half a structure": (
        lambda folder: (folder / "structure.json").write_text('{"format": 1, "root'),
        ValueError,
        "structure.json is damaged",
    ),
    "half of the values": (
        lambda folder: (folder / "values.npz").write_bytes(b"PK"),
        ValueError,
        r"values\.npz is not what was saved",
    ),
    "later format": (
        damaged(lambda structure: structure.update(format=99)),
        ValueError,
        "has format 99",
    ),
    "no kind": (
        damaged(lambda structure: structure["root"].pop("kind")),
        ValueError,
        "cannot be read.*kind",
    ),
    "no reference": (
        damaged(lambda structure: structure.update(root={"kind": "reference", "to": 5})),
        ValueError,
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_folders(name, tmp_path):
    damage, kind, message = DAMAGE[name]
    save(gpflow.kernels.Matern12(), tmp_path / "saved")
    damage(tmp_path / "saved")
    with pytest.raises(kind, match=message):
        load(tmp_path / "saved")


def test_values_of_another_save(tmp_path):
    for name, scale in (("one", 1.0), ("two", 2.0)):
        save(gpflow.kernels.Matern12(lengthscales=scale), tmp_path / name)
    (tmp_path / "two" / "values.npz").replace(tmp_path / "one" / "values.npz")
    with pytest.raises(ValueError, match=r"values\.npz is not what"):
        load(tmp_path / "one")


def test_a_class_of_the_package_is_found_without_being_imported_before(tmp_path):
    """A name is imported from its module; nothing has to be imported beforehand."""
    assert isinstance(sys.modules["gpflow_gvi"], types.ModuleType)
    loss = there_and_back(gvi.losses.BetaLoss(1.3), tmp_path)
    assert loss.beta == 1.3

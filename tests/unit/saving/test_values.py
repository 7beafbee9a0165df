"""Numbers, names and parameters come back as they were, to the last bit."""

from __future__ import annotations

import math

import gpflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from .things import there_and_back

tfb, tfd = tfp.bijectors, tfp.distributions

PLAIN = {
    "nothing": None,
    "numbers": [True, 7, -(10**30), 0.1, 1e-320, -0.0],
    "infinite": (math.inf, -math.inf),
    "text": "σ² \n \"quoted\" 'both' /..",
    "nested": {"a": [(1, (2,)), []], 3: {}, (4, "b"): None},
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

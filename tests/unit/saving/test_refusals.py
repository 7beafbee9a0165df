"""What cannot be saved is named, with where it was found and what to do instead."""

from __future__ import annotations

import threading
from collections import OrderedDict

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import gpflow_gvi as gvi
from gpflow_gvi.saving import save
from tests import networks

from .things import Slotted, Stateful


def with_lambda():
    return keras.Sequential([keras.Input((2,)), keras.layers.Lambda(lambda X: X + 1.0)])


def two_with_a_layer_in_common():
    common = keras.layers.Dense(2)
    return [keras.Sequential([keras.Input((2,)), common]) for _ in range(2)]


def model_of(mean_function):
    kernel = gpflow.kernels.Matern12()
    P = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    Q = gvi.GaussianProcess(mean_function, kernel)
    return gvi.models.PGVI(P, Q, gpflow.likelihoods.Gaussian(), num_data=3)


class Count(int):
    """A number with a name."""


ANONYMOUS = [lambda X: X]


UNSAVABLE = {
    "slots": (lambda: [Slotted()], r"list\[0\].*Slotted.*more than its attributes"),
    "state": (lambda: [Stateful(1)], r"list\[0\].*Stateful.*more than its attributes"),
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
        lambda: model_of(gvi.mean_functions.Network(with_lambda())),
        r"PGVI\.variational\.mean_function\.network\.network .*Sequential.*lambda",
    ),
    "tf_keras": (lambda: [networks.dense(tf_keras)], r"list\[0\].*Sequential.*more than its attr"),
    "layers in common": (two_with_a_layer_in_common, r"list\[1\].*shares layers with list\[0\]"),
    "layer": (lambda: [keras.layers.Dense(2)], r"list\[0\].*no weights yet"),
    "optimiser": (lambda: [keras.optimizers.Adam()], r"list\[0\].*Adam"),
    "dataset": (lambda: [tf.data.Dataset.range(3)], r"list\[0\].*Dataset"),
    "lock": (lambda: {"a": threading.Lock()}, r"dict\['a'\].*lock.*Remove it"),
    "method": (lambda: [gpflow.kernels.Matern12().K], r"list\[0\].*method"),
    "ordered": (lambda: [OrderedDict(a=1)], r"list\[0\].*OrderedDict.*own lists"),
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


def test_estimators_are_kept_by_what_they_learned_or_by_joblib(tmp_path):
    model = gvi.GVIRegressor()
    model.learned_ = None  # as `fit` leaves it where y is constant
    with pytest.raises(TypeError, match=r"thing is a GVIRegressor, .*learned_, .*joblib.dump"):
        save(model, tmp_path / "saved")


def test_a_folder_is_a_path():
    with pytest.raises(TypeError, match=r"folder is 3; it must be the path of a folder"):
        save(gpflow.kernels.Matern12(), 3)


def test_inside_a_graph(tmp_path):
    with pytest.raises(TypeError, match="belongs to a graph"):
        tf.function(lambda x: save([x], tmp_path / "saved"), autograph=False)(tf.constant(1.0))

"""Small networks of every kind that the package takes, ready to be built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def dense(K: Any, F: int = 1, dtype: str = "float64", D: int = 2) -> Any:
    """Two dense layers."""
    return K.Sequential(
        [
            K.Input((D,), dtype=dtype),
            K.layers.Dense(4, activation="tanh", dtype=dtype),
            K.layers.Dense(F, dtype=dtype),
        ]
    )


def regularised(K: Any, dropout: float = 0.5, D: int = 2, F: int = 1) -> Any:
    """Dense layers with batch normalisation and dropout between them."""
    return K.Sequential(
        [
            K.Input((D,)),
            K.layers.Dense(8, activation="tanh"),
            K.layers.BatchNormalization(momentum=0.9),
            K.layers.Dropout(dropout),
            K.layers.Dense(F),
        ]
    )


def hidden_layer(K: Any, D: int = 2) -> Any:
    """The model, of layers that another model has as well, which ends before its last layer."""
    whole = dense(K, D=D)
    return K.Model(whole.inputs, whole.layers[-2].output)


class Perceptron(tf.Module):
    """One hidden layer without Keras."""

    def __init__(self, F: int = 1, dtype: str = "float64") -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        self.inner = tf.Variable(rng.normal(size=(2, 4)), dtype=dtype)
        self.outer = [tf.Variable(rng.normal(size=(4, F)), dtype=dtype)]
        self.count = tf.Variable(0, trainable=False)

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return tf.tanh(X @ self.inner) @ self.outer[0]


class Mixed(tf.Module):
    """A module that holds a layer of Keras beside a variable of its own."""

    def __init__(self, K: Any) -> None:
        super().__init__()
        self.layers = [K.layers.Dense(3, dtype="float64"), K.layers.Dense(1, dtype="float64")]
        self.shift = tf.Variable(np.array(0.3))

    def __call__(self, X: tf.Tensor) -> tf.Tensor:
        return self.layers[1](tf.tanh(self.layers[0](X))) + self.shift


WITH_WEIGHTS: dict[str, Callable[..., Any]] = {
    "keras": lambda F=1, dtype="float64": dense(keras, F, dtype),
    "tf.Module": Perceptron,
}
"""Networks from two columns to F."""


def tensors(variables: Any) -> list[tf.Variable]:
    """The variables of TensorFlow behind those of Keras 3."""
    return [v if isinstance(v, tf.Variable) else v.value for v in variables]

"""Random matrices, and the derivatives of functions of matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

Array = np.ndarray


def covariance(rng: np.random.Generator, *shape: int, rank: int | None = None) -> Array:
    """A random covariance [*shape, shape[-1]] of the given rank, of unit scale."""
    root = rng.normal(size=(*shape, rank or 2 * shape[-1]))
    return root @ np.swapaxes(root, -1, -2) / root.shape[-1]


def gradients(function: Callable[..., tf.Tensor], *matrices: Array) -> list[Array]:
    tensors = [tf.constant(matrix) for matrix in matrices]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return [gradient.numpy() for gradient in tape.gradient(value, tensors)]


def slope(function: Callable[[Array], float], at: Array, direction: Array) -> float:
    """The directional derivative by central differences."""
    h = 1e-5
    return (float(function(at + h * direction)) - float(function(at - h * direction))) / (2 * h)

"""Kernels of finitely many features: k(x, x') = φ(x)ᵀ φ(x'), Bayesian linear regression on φ."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf
from gpflow.base import TensorType
from gpflow.kernels import Constant, Kernel, Linear, SharedIndependent, Sum

Features = Callable[[TensorType], tf.Tensor]
"""φ, from inputs [N, D] to features [N, F]."""


@functools.singledispatch
def features(kernel: Kernel) -> Features | None:
    """Return φ with k(x, x') = φ(x)ᵀ φ(x'), or None for a kernel that has none of finite length.

    `@features.register(YourKernel)` adds a kernel of your own. (Rasmussen and Williams 2006,
    section 2.1.2, where φ includes the root of the weights' prior covariance.)
    """
    return None


@features.register(Linear)
def _linear(kernel: Linear) -> Features | None:
    if type(kernel) is not Linear:  # Polynomial is a subclass of it
        return None
    return lambda X: kernel.slice(tf.convert_to_tensor(X), None)[0] * tf.sqrt(kernel.variance)


@features.register(Constant)
def _constant(kernel: Constant) -> Features:
    return lambda X: tf.fill([tf.shape(X)[0], 1], tf.sqrt(kernel.variance))


@features.register(Sum)
def _sum(kernel: Sum) -> Features | None:
    parts = [features(part) for part in kernel.kernels]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return lambda X: tf.concat([part(X) for part in known], axis=-1)


@features.register(SharedIndependent)
def _shared(kernel: SharedIndependent) -> Features | None:
    return features(kernel.kernel)

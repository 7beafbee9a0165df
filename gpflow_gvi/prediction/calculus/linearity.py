"""Slopes and integrals of a kernel from those of its parts, which are linear in the kernel."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NoReturn

import tensorflow as tf
from gpflow import kernels
from gpflow.kernels import Kernel

from ..._core import linalg
from ...covariances import FixedSparsePosterior, Tempered

Factors = list[tf.Tensor]
"""The factor A of a covariance, or A and B, under some linear operation: [J, M, N] each."""


def of_combinations(known: Any) -> None:
    """Register sums, multi-output and tempered kernels with a function linear in the kernel."""
    known.register(kernels.Sum, lambda k, *args: sum(known(part, *args) for part in k.kernels))
    known.register(kernels.SharedIndependent, lambda k, *args: known(k.kernel, *args))
    known.register(
        kernels.SeparateIndependent,
        lambda k, *args: tf.concat([known(part, *args) for part in k.kernels], axis=0),
    )
    known.register(
        Tempered, lambda k, *args: tf.reshape(k.factor, [-1, 1]) * known(k.kernel, *args)
    )


def assembled(
    kernel: Kernel, base: tf.Tensor, right: Factors, left: Factors | None = None
) -> tf.Tensor:
    """Return b - AᵀA + BᵀB column by column, of left and right factors: [J or 1, N].

    Without `left` factors it is a variance, and values that rounded below zero are corrected.
    """
    value = base
    for sign, first, second in zip((-1.0, 1.0), left or right, right, strict=False):
        value = value + sign * tf.reduce_sum(first * second, axis=-2)
    if left is not None:
        return value
    suspect = type(kernel).__name__ if isinstance(kernel, FixedSparsePosterior) else ""
    return linalg.floor(value, base, relative=linalg.epsilon(value.dtype), suspect=suspect)


def require_exactly(kinds: Container[type], kernel: Kernel, known: Any) -> None:
    """Raise for a subclass, whose formula is another (`Polynomial` is a `Linear` in GPflow)."""
    if type(kernel) not in kinds:
        unknown(kernel, known)


def unknown(kernel: Kernel, known: Any) -> NoReturn:
    """Raise for a kernel without a formula."""
    names = ", ".join(sorted({kind.__name__ for kind in known.registry} - {"object"}))
    raise TypeError(
        f"kernel is a {type(kernel).__name__}, for which {known.__name__} has no formula; it has "
        f"for {names}. calculus.{known.__name__}.register adds one."
    )

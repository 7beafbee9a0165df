"""Images as rows of numbers, which GPflow works on.

GPflow's models, likelihoods and inducing points take rows, [N, D], and read the axes of X before
the last two as a batch of such sets. The parts of a process declare the shape of one input, which
distinguishes an image [H, W, C] from a batch: a kernel, mean function or network by its
`input_shape`, as `NNGP`, `FeatureMap`, `Network` and Keras models have it, and inducing points by
the number of their columns. Where no part declares a shape X stays as it is, and GPflow's
convention holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from gpflow.base import Parameter, TensorType
from gpflow.inducing_variables import InducingPatches
from gpflow.kernels import Kernel

from . import outputs


def as_rows(X: TensorType, *parts: tf.Module) -> TensorType:
    """Return images [batch..., N, H, W, C] as rows [batch..., N, H·W·C], and rows as they are.

    Images of one channel may lack the last axis. A tensor of unknown rank is one set of images or
    rows, as a batch of sets has to be declared as such.

    :param parts: what X is for; they say the shape of one input.
    """
    rank = tf.TensorShape(getattr(X, "shape", None)).rank
    if rank is None and tf.is_symbolic_tensor(X):
        shape = input_shape(*parts)
        if shape is None:
            return tf.ensure_shape(X, [None, None])
        return tf.reshape(X, [tf.shape(X)[0], math.prod(shape)])
    if rank is None or rank <= 2:
        return X
    shape = input_shape(*parts)
    if shape is None or X.shape[-1] == math.prod(shape):
        return X
    own = _axes_of_one(tuple(X.shape)[1:], shape)
    if own is None:
        raise ValueError(
            f"X has shape {tuple(X.shape)}, but one input is of shape {shape}. Pass "
            f"{('N', *shape)}, or rows of {math.prod(shape)} numbers."
        )
    return tf.reshape(X, [*tf.unstack(tf.shape(X)[: rank - own]), math.prod(shape)])


def process_rows(X: tf.Tensor, *parts: tf.Module) -> tf.Tensor:
    """Return the inputs of a process as rows, of as many columns as its parts declare."""
    X = as_rows(X, *parts)
    shape = input_shape(*parts) if X.shape.rank == 2 else None
    if shape is not None and X.shape[-1] not in (None, math.prod(shape)):
        raise ValueError(
            f"X has shape {tuple(X.shape)}, but one input has {math.prod(shape)} columns; pass the "
            "columns that the model was made for, in their order."
        )
    return X


def require_rows(X: tf.Tensor, *parts: tf.Module) -> None:
    """Raise unless X is one set of rows, and not a batch of such sets, where parts declare rows."""
    if X.shape.rank not in (None, 2) and input_shape(*parts) is not None:
        raise ValueError(f"X has shape {tuple(X.shape)}; it must be [N, D], a row for each input.")


def data_rows(X: TensorType, kernel: Kernel, *parts: tf.Module) -> TensorType:
    """Return the inputs of data for a kernel: `as_rows`, with no axis of X being a batch.

    Images become rows for kernels that say nothing, too, unless they take them as they are.
    """
    X = as_rows(X, kernel, *parts)
    if len(X.shape) <= 2 or _takes(kernel, X[:1]):
        return X
    refuse_sets(X)
    return tf.reshape(X, [tf.shape(X)[0], -1])


def refuse_sets(X: TensorType, *, are_images: bool = True) -> None:
    """Raise for [N, 1, D], which GPflow reads as N sets of one row, and which are no images.

    :param are_images: whether other X of more than two axes are; else they are refused, too.
    """
    if len(X.shape) > 2 and (X.shape[1:-1] == (1,) or not are_images):
        raise ValueError(
            f"X has shape {tuple(X.shape)}; it must be [N, D], a row for each input: "
            "X.reshape(len(X), -1)."
        )


def input_shape(*parts: tf.Module) -> tuple[int, ...] | None:
    """Return the shape of one input, as the parts say it; that of an image before that of a row."""
    return max(_declared(parts, set()), key=len, default=None)


def _takes(kernel: Kernel, X: TensorType) -> bool:
    """Return True if k(x, x) is one number for each output at an image x."""
    try:
        return outputs.variance(kernel, X).shape.rank == 2
    except tf.errors.InvalidArgumentError:  # more lengthscales than columns
        return False


def _axes_of_one(given: tuple[int | None, ...], wanted: tuple[int, ...]) -> int | None:
    """Return the number of trailing axes that make up one input; None if the shapes do not fit."""
    for shape in (wanted, wanted[:-1]) if wanted[-1] == 1 else (wanted,):
        if shape and tf.TensorShape(given[-len(shape) :]).is_compatible_with(shape):
            return len(shape)
    if len(wanted) == 1:  # inputs are vectors: images of as many pixels
        for axes in range(1, len(given) + 1):
            own = tf.TensorShape(given[-axes:])
            if own.num_elements() == wanted[0]:
                return axes
    return None


def _declared(value: Any, seen: set[int]) -> Iterator[tuple[int, ...]]:
    """Find what is said about the shape of one input in a structure of parts."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _declared(item, seen)
    if not isinstance(value, tf.Module) or isinstance(value, Parameter) or id(value) in seen:
        return
    seen.add(id(value))
    if hasattr(value, "input_shape"):  # parts inside may see other inputs, such as features
        if value.input_shape is not None and _sees_all_columns(value):
            yield tuple(value.input_shape)
        return
    Z = getattr(value, "Z", None)
    if Z is not None and len(Z.shape) == 2 and not isinstance(value, InducingPatches):
        yield (int(Z.shape[1]),)
    # Not `submodules`: a covariance hides P's kernel from it, which is not to be trained there.
    yield from _declared(list(vars(value).values()), seen)


def _sees_all_columns(part: tf.Module) -> bool:
    if not isinstance(part, Kernel):
        return True
    return isinstance(part.active_dims, slice) and part.active_dims == slice(None)

"""Kernels that differ in the values of their parameters alone, and the graphs that they share.

Tracing a graph takes as long as many evaluations on small data, and leaves memory behind. So a
function of a kernel and of arrays is traced once for a structure of kernels: its graph reads a
kernel that is kept, which takes the values of the one at hand.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import gpflow.kernels
import tensorflow as tf
from gpflow import Parameter
from gpflow.config import default_float, default_jitter
from gpflow.kernels import Kernel, Product, SeparateIndependent, Sum
from gpflow.utilities import deepcopy, parameter_dict

from .spectral_mixture import AdditiveSpectralMixture

T = TypeVar("T")

MAX_STRUCTURES = 8
"""The number of structures whose graphs are kept."""

_ARE_THEIR_PARAMETERS = (
    AdditiveSpectralMixture,
    gpflow.kernels.Constant,
    gpflow.kernels.Exponential,
    gpflow.kernels.Linear,
    gpflow.kernels.Matern12,
    gpflow.kernels.Matern32,
    gpflow.kernels.Matern52,
    gpflow.kernels.RationalQuadratic,
    gpflow.kernels.SquaredExponential,
    gpflow.kernels.White,
)
"""Kernels that are known to be their class, their active dimensions and their parameters."""


def structure(kernel: Kernel, of_parameter: Callable[[Parameter], Hashable]) -> Hashable | None:
    """Return what is equal for kernels that differ in the values of parameters; None if unknown.

    :param kernel: the kernel.
    :param of_parameter: what two parameters have in common.
    """
    if type(kernel) in (Sum, Product, SeparateIndependent):
        parts = tuple(structure(part, of_parameter) for part in kernel.kernels)
        return None if None in parts else (type(kernel), parts)
    if type(kernel) not in _ARE_THEIR_PARAMETERS:
        return None
    parameters = (
        (path, of_parameter(parameter))
        for path, parameter in sorted(parameter_dict(kernel).items())
    )
    return type(kernel), str(kernel.active_dims), tuple(parameters)


def by_structure(
    function: Callable[..., T], otherwise: Callable[..., T] | None = None
) -> Callable[..., T]:
    """Let a function of a kernel and of arrays run as a graph that is traced once for a structure.

    The arrays may have any number of rows. The kernel's parameters are constants to a gradient, as
    the graph reads others. Within another graph the function is called as it is.

    :param function: the function.
    :param otherwise: what takes kernels of unknown structure; the function itself if not given.
    """

    @functools.wraps(function)
    def wrapper(kernel: Kernel, *arrays: Any) -> T:
        if not tf.executing_eagerly():
            return function(kernel, *arrays)
        shapes = structure(kernel, lambda parameter: tuple(parameter.shape))
        if shapes is None:
            return (otherwise or function)(kernel, *arrays)
        tensors = [tf.convert_to_tensor(array) for array in arrays]
        return _kept(kernel, shapes).run(function, kernel, tensors)

    return wrapper


class _Graphs:
    """The graphs of functions of kernels of one structure."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = deepcopy(kernel)
        for part in (self._kernel, *self._kernel.submodules):
            for name, value in list(vars(part).items()):
                if isinstance(value, Parameter):  # any value is taken, without a transform
                    setattr(part, name, Parameter(value.numpy()))
        self._parameters = parameter_dict(self._kernel)
        self._graphs: dict[Hashable, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def run(self, function: Callable[..., T], kernel: Kernel, tensors: list[tf.Tensor]) -> T:
        specs = [_spec(tensor) for tensor in tensors]
        key = function, tuple(specs)
        if key not in self._graphs:
            # It does not refer to the user's kernel.
            bound = functools.partial(function, self._kernel)
            self._graphs[key] = tf.function(bound, input_signature=specs, autograph=False)
        with self._lock:
            for path, parameter in parameter_dict(kernel).items():
                self._parameters[path].unconstrained_variable.assign(parameter)
            value: T = self._graphs[key](*tensors)
        return value


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    """Return the type of tensors with another number of rows."""
    rows = [None] if tensor.shape.rank else []
    return tf.TensorSpec([*rows, *tensor.shape[1:]], tensor.dtype)


_all: collections.OrderedDict[Hashable, _Graphs] = collections.OrderedDict()
_lock = threading.Lock()


def _kept(kernel: Kernel, shapes: Hashable) -> _Graphs:
    key = shapes, default_float(), default_jitter()
    with _lock:
        if key not in _all:
            _all[key] = _Graphs(kernel)
            while len(_all) > MAX_STRUCTURES:
                _all.popitem(last=False)
        _all.move_to_end(key)
        return _all[key]

"""Kernels that differ in the values of their parameters alone, and the graphs that they share.

Tracing a graph takes as long as many evaluations on small data, and leaves memory behind. So a
function of a kernel and of arrays is traced once for a structure of kernels: its graph reads a
kernel that is kept, which takes the values of the one at hand.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

import gpflow.kernels
import tensorflow as tf
from gpflow import Parameter
from gpflow.config import default_float, default_jitter
from gpflow.kernels import Kernel, Product, SeparateIndependent, Sum
from gpflow.utilities import deepcopy, parameter_dict

from .integrated_brownian_motion import IntegratedBrownianMotion
from .spectral_mixture import AdditiveSpectralMixture

T = TypeVar("T")

MAX_STRUCTURES = 8
"""The number of structures whose graphs are kept."""

_ARE_THEIR_PARAMETERS = (
    AdditiveSpectralMixture,
    IntegratedBrownianMotion,
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


def by_structure(function: Callable[..., T]) -> Callable[..., T]:
    """Let a function of a kernel and of arrays run as a graph that is traced once for a structure.

    The arrays may have any number of rows. The kernel's parameters are constants to a gradient, as
    the graph reads others. Kernels of unknown structure take the function as it is, and so does
    what is within another graph.

    :param function: the function.
    """

    @functools.wraps(function)
    def wrapper(kernel: Kernel, *arrays: Any) -> T:
        if not tf.executing_eagerly():
            return function(kernel, *arrays)
        graphs = graphs_of(kernel)
        if graphs is None:
            return function(kernel, *arrays)
        with graphs.with_values_of(kernel) as run:
            value: T = run(function, *arrays)
        return value

    return wrapper


class Graphs:
    """The graphs of functions of kernels of one structure."""

    def __init__(self, kernel: Kernel, shapes: Hashable) -> None:
        self._kernel = deepcopy(kernel)
        self._shapes = shapes
        self._parameters = parameter_dict(self._kernel)
        self._graphs: dict[Hashable, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def are_of(self, kernel: Kernel, shapes: Hashable) -> bool:
        """Return whether a kernel has this structure, the transforms of parameters included."""
        return shapes == self._shapes and all(
            parameter.transform == self._parameters[path].transform
            for path, parameter in parameter_dict(kernel).items()
        )

    @contextlib.contextmanager
    def with_values_of(self, kernel: Kernel) -> Iterator[Callable[..., Any]]:
        """Yield what runs a function of this kernel and of arrays; other threads wait."""
        with self._lock:
            for path, parameter in parameter_dict(kernel).items():
                own = self._parameters[path].unconstrained_variable
                own.assign(parameter.unconstrained_variable)
            yield self._run

    def _run(self, function: Callable[..., Any], *arrays: Any) -> Any:
        tensors = [tf.convert_to_tensor(array) for array in arrays]
        specs = [_spec(tensor) for tensor in tensors]
        key = function, *specs
        if key not in self._graphs:
            # It does not refer to the user's kernel.
            bound = functools.partial(function, self._kernel)
            graph = tf.function(bound, input_signature=specs, autograph=False)
            self._graphs[key] = graph.get_concrete_function()
        return self._graphs[key](*tensors)


def _spec(tensor: tf.Tensor) -> tf.TensorSpec:
    """Return the type of tensors with another number of rows."""
    rows = [None] if tensor.shape.rank else []
    return tf.TensorSpec([*rows, *tensor.shape[1:]], tensor.dtype)


_all: collections.deque[Graphs] = collections.deque(maxlen=MAX_STRUCTURES)
_lock = threading.Lock()


def graphs_of(kernel: Kernel) -> Graphs | None:
    """Return the graphs of the kernel's structure; None if it is unknown."""
    shapes = structure(kernel, lambda parameter: tuple(parameter.shape))
    if shapes is None:
        return None
    shapes = shapes, default_float(), default_jitter()
    with _lock:
        found = next((graphs for graphs in _all if graphs.are_of(kernel, shapes)), None)
        if found is None:
            found = Graphs(kernel, shapes)
        else:
            _all.remove(found)
        _all.appendleft(found)  # the one that was used longest ago goes
        return found

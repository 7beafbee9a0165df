"""What this package uses of TensorFlow and TensorFlow Probability that is not their public API.

No other module imports a private module of theirs or calls a private method of their graphs; `ruff`
refuses the former. Each function says what it is for and why there is no public way, and has one
test, which fails where a later version has it no more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import context, record
from tensorflow.python.framework.ops import gradient_registry
from tensorflow_probability.python.internal import implementation_selection

_WITH_BRANCHES = ("If", "StatelessIf", "While", "StatelessWhile")
"""The types of operations that have graphs of their own."""


def is_differentiated() -> bool:
    """Return True if a tape or a forward accumulator of this thread may record an operation.

    A graph that no tape sees, and a constant that is kept as a variable, would break the chain of
    derivatives. `tf.GradientTape` can be asked what it watches, but not whether there is one.
    """
    return bool(record.could_possibly_record())


def is_compiled_by_xla() -> bool:
    """Return True if a function is traced for XLA, which compiles no function of NumPy.

    `jit_compile=True` of an outer `tf.function` is no property of the graphs inside of it, and
    TensorFlow has no public function that goes through them.
    """
    return bool(implementation_selection.is_xla())


def eigh_of_xla(M: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the same as `tf.linalg.eigh`, in a graph for XLA and to the precision of its type.

    XLA's rotations end when what is off the diagonal is a millionth of the matrix, in whatever
    precision. Public functions have no other tolerance.
    """
    epsilon = 10.0 * float(np.finfo(M.dtype.as_numpy_dtype).eps)
    values, vectors = gen_xla_ops.xla_self_adjoint_eig(M, lower=True, max_iter=100, epsilon=epsilon)
    return values, vectors


@contextlib.contextmanager
def untrained(variables: Iterable[tf.Variable]) -> Iterator[None]:
    """Let variables be ones that are not trained, within a block.

    Whether one is trained is said when it is made; `gpflow.set_trainable` changes that as this
    does, but all variables of a module at once.
    """
    changed = [variable for variable in variables if variable.trainable]
    for variable in changed:
        variable._trainable = False
    try:
        yield
    finally:
        for variable in changed:
            variable._trainable = True


def has_started() -> bool:
    """Return True if TensorFlow has threads, which a forked process does not inherit.

    Public functions start it when they are asked about it.
    """
    known = context.context_safe()
    return known is not None and bool(known._initialized)


def call(graph: Any, *tensors: tf.Tensor) -> Any:
    """Return the value of a concrete function at tensors of exactly its types.

    For one row its public call takes half as long again, to compare the types of arguments.
    """
    return graph._call_flat(list(tensors), graph.captured_inputs)


def forget_custom_gradients(graph: tf.Graph) -> None:
    """Take the custom gradients in a graph out of TensorFlow's registry.

    `tf.custom_gradient` registers one for each of its calls in a graph. The registry lives as long
    as the process and refers to the graph; `tf.RegisterGradient` can add to it, and nothing takes
    out of it. Gradients of functions that the graph calls remain, as others may call them.
    """
    for operation in graph.get_operations():
        with contextlib.suppress(ValueError):  # most have no such attribute
            name = operation.get_attr("_gradient_op_type").decode()
            if name.startswith("CustomGradient-"):
                gradient_registry._registry.pop(name, None)
        for branch in _branches(operation):
            forget_custom_gradients(branch)


def _branches(operation: tf.Operation) -> Iterator[tf.Graph]:
    """Yield the graphs of a condition or a loop: its public attributes have their names only."""
    if operation.type in _WITH_BRANCHES:
        for attribute in operation.node_def.attr.values():
            function = operation.graph._get_function(attribute.func.name)
            if function is not None:
                yield function.graph

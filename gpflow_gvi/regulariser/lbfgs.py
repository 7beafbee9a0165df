"""L-BFGS for losses that are evaluated in full, on variables of any floating dtype."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import scipy.optimize
import tensorflow as tf

from .._core.threads import one_thread
from ..errors import NonFiniteLossError
from ..kernels.numpy_parameters import THEIR_OWN, ValuesById

Array = np.ndarray[Any, Any]
Loss = Callable[[], tf.Tensor]
Variables = Sequence[tf.Variable]


class Minimise(Protocol):
    """Anything that lowers a loss by changing variables."""

    def __call__(self, loss: Loss, variables: Variables) -> None:
        """Change the variables so that the loss is smaller."""


@dataclasses.dataclass(frozen=True)
class LossWithGradients:
    """A loss that computes its gradients itself; called, it is one for minimisers with a tape."""

    loss: Loss
    """The loss, of which a tape has the gradients."""
    evaluate: Callable[[ValuesById], tuple[Any, Sequence[Any]]]
    """The loss and its gradients."""
    variables: Variables
    """What these gradients are in."""
    bounds: Mapping[int, tuple[float, float]] = dataclasses.field(default_factory=dict)
    """Between which values the elements of variables stay, by their ids."""

    def __call__(self) -> tf.Tensor:
        """Return the loss."""
        return self.loss()

    def value_and_gradients(
        self, variables: Variables, at: ValuesById = THEIR_OWN
    ) -> tuple[Any, list[Any]]:
        """Return the loss, and its gradients in some of the variables."""
        value, gradients = self.evaluate(at)
        of_variable = {id(v): g for v, g in zip(self.variables, gradients, strict=True)}
        return value, [of_variable[id(variable)] for variable in variables]


def lbfgs(
    loss: Loss, variables: Variables, *, max_iterations: int = 500, tolerance: float = 1e-9
) -> None:
    """Minimise with L-BFGS-B (Byrd, Lu, Nocedal and Zhu 1995, as SciPy has it).

    Unlike `gpflow.optimizers.Scipy` it takes variables of different dtypes (a float32 network in a
    float64 model), and a trial step to where the loss is not finite is shortened instead of raising
    an error. The variables end at the smallest loss that was found.

    :param loss: the loss; a `tf.function` if it is to be fast. One with a method
        `value_and_gradients(variables, values_by_id)` computes its gradients itself, at values
        that are not assigned to the variables before, and may have `bounds`.
    :param variables: what may change.
    :param tolerance: stop when an iteration lowers the loss by less than this part of it.
    """
    variables = [variable for variable in variables if variable.shape.num_elements()]
    if not variables:
        return
    start = _flat(variables)
    value_and_gradients = getattr(loss, "value_and_gradients", functools.partial(by_tape, loss))
    best = np.inf

    def evaluate(x: Array) -> tuple[float, Array]:
        nonlocal best
        with np.errstate(all="ignore"):  # a step may lead to where a loss by NumPy is not finite
            value, gradients = value_and_gradients(variables, _by_id(variables, x))
        value, gradient = float(value), _flat(gradients)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            if best == np.inf:
                raise NonFiniteLossError(
                    f"The loss is {value} with a gradient of norm {np.linalg.norm(gradient)} at "
                    "the start of the optimisation. Check the data and the starting values of the "
                    "kernel, the mean function and the noise."
                )
            return best + 1e3 * (1.0 + abs(best)), np.zeros_like(x)
        best = min(best, value)
        return value, gradient

    of_variable = getattr(loss, "bounds", {})
    bounds = [
        of_variable.get(id(variable), (None, None))
        for variable in variables
        for _ in range(variable.shape.num_elements())
    ]
    options = {
        "maxiter": max_iterations,
        "maxfun": 2 * max_iterations,  # where rounding hides the descent a line search is long
        "ftol": tolerance,
        "maxcor": 20,
    }
    with one_thread("blas"):  # SciPy's own vectors are short
        found = scipy.optimize.minimize(
            evaluate, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    assign_by_id(variables, _by_id(variables, found.x))


def by_tape(
    loss: Loss, variables: Variables, at: ValuesById = THEIR_OWN
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Assign values, and return a loss and its gradients in variables by differentiation."""
    assign_by_id(variables, at)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value = loss()
    return value, tape.gradient(value, variables, unconnected_gradients="zero")


def _flat(tensors: Sequence[tf.Tensor | Array]) -> Array:
    dense = (tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x for x in tensors)
    return np.concatenate([np.ravel(x).astype(np.float64) for x in dense])


def assign_by_id(variables: Variables, at: ValuesById) -> None:
    """Give variables the values that there are by their ids."""
    for variable in variables:
        if id(variable) in at:
            variable.assign(at[id(variable)])


def _by_id(variables: Variables, x: Array) -> dict[int, Array]:
    """Return the parts of a vector as values of variables, of their shapes and dtypes."""
    ends = np.cumsum([variable.shape.num_elements() for variable in variables])
    return {
        id(variable): part.reshape(variable.shape).astype(variable.dtype.as_numpy_dtype)
        for variable, part in zip(variables, np.split(x, ends[:-1]), strict=True)
    }

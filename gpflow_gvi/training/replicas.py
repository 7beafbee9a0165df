"""The replicas: one step of training on several devices or machines, each with some of the rows.

Under a `tf.distribute` strategy a variable is there once for each device, the replicas. Each
replica evaluates the objective at its rows of the batch. With B rows, b_r of them at replica r,

    objective at all rows = Σ_r (b_r / B) · objective at the rows of r

for everything that is an average over rows, and likewise for its gradient. The sum is the same
everywhere after an all-reduce, and so is the step. Without a strategy there is one replica.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from .._core.errors import NumericsWarning
from ..divergences import Divergence, InducingKL
from ..divergences.projected import ProjectedDivergence


class Share(NamedTuple):
    """The rows of a batch that are those of one replica."""

    X: tf.Tensor
    Y: tf.Tensor

    weight: tf.Tensor | None
    """Their share of the batch; None for all of it."""

    def of(self, value: tf.Tensor) -> tf.Tensor:
        """Return the part of an average over the batch that the average over these rows is."""
        return value if self.weight is None else tf.cast(self.weight, value.dtype) * value


def share(X: tf.Tensor, Y: tf.Tensor) -> Share:
    """Return the rows of the replica in whose context this is called.

    A replica without any, as there are too few, has a row of weight zero: averages stay finite.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    if replicas == 1:
        return Share(X, Y, None)
    B, r = tf.shape(X)[0], tf.cast(context.replica_id_in_sync_group, tf.int32)
    start, stop = r * B // replicas, (r + 1) * B // replicas
    rows = slice(start, tf.maximum(stop, start + 1))
    return Share(X[rows], Y[rows], tf.cast(stop - start, tf.float64) / tf.cast(B, tf.float64))


def summed(values: Any) -> Any:
    """Return the sum of the values of all replicas, in the context of each of them."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    flat = tf.nest.flatten(values)
    for dtype in dict.fromkeys(value.dtype for value in flat):  # those of one are sent together
        places = [i for i, value in enumerate(flat) if value.dtype == dtype]
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, [flat[i] for i in places])
        for i, total in zip(places, sums, strict=True):
            flat[i] = total
    return tf.nest.pack_sequence_as(values, flat)


def local(value: Any) -> tf.Tensor:
    """Return the value at the first replica of this process."""
    return tf.distribute.get_strategy().experimental_local_results(value)[0]


def handed_over_once(gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return gradients at one replica, and zeros at the others.

    The optimisers of Keras clip what a replica hands them, and then add it up. So they clip the
    whole gradient, as they do without replicas, and keep it as it is.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return list(gradients)
    first = tf.equal(context.replica_id_in_sync_group, 0)
    return [tf.where(first, gradient, tf.zeros_like(gradient)) for gradient in gradients]


def strategy_of(variables: Sequence[tf.Variable]) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope all of the variables were made, if in any."""
    current = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
    found = (getattr(variable, "distribute_strategy", None) for variable in variables)
    strategy = next((one for one in found if one is not None), current)
    require_in_scope(strategy, variables, "the model")
    return strategy


def require_in_scope(
    strategy: tf.distribute.Strategy | None, variables: Sequence[tf.Variable], whose: str
) -> None:
    """Raise unless all of the variables were made in the scope of the strategy, if there is one."""
    if strategy is None:
        return
    outside = [v.name for v in variables if not strategy.extended.variable_created_in_scope(v)]
    if outside:
        raise ValueError(
            f"compile: of {whose}, {', '.join(outside)} was not made in the scope of the "
            f"{type(strategy).__name__} in which it is to be trained. Make the model and its "
            "optimiser within `with strategy.scope():`."
        )


def require_one_dtype(variables: Sequence[tf.Variable]) -> None:
    """Raise unless the variables have one dtype: Keras's optimisers add up gradients of one."""
    dtypes = sorted({tf.as_dtype(variable.dtype).name for variable in variables})
    if len(dtypes) > 1:
        raise ValueError(
            f"compile: the trainable variables are of {' and '.join(dtypes)}, but between replicas "
            "Keras's optimisers add up gradients of one dtype only. Make networks in GPflow's "
            "default float, or pass them through gpflow_gvi.networks.in_precision."
        )


def scope(strategy: tf.distribute.Strategy | None) -> contextlib.AbstractContextManager[Any]:
    """Return the scope of a strategy, if there is one."""
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def is_first() -> bool:
    """Return True if this process is the one worker that writes files."""
    return bool(tf.distribute.get_strategy().extended.should_checkpoint)


def require_same_epoch(first: int) -> None:
    """Raise unless all workers start with the same epoch."""
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync == 1:
        return

    def total() -> tf.Tensor:
        return local(strategy.run(lambda: summed(tf.constant(float(first)))))

    mean = float(tf.function(total, autograph=False)()) / strategy.num_replicas_in_sync
    if mean != first:
        raise ValueError(
            f"BackupAndRestore: this worker starts with epoch {first}, and others with another. "
            "Let backup_dir be a folder that all of them see; the first worker writes it."
        )


def warn_unless_average(divergence: Any) -> None:
    """Warn of a divergence that is not the average of those at the rows of the replicas."""
    if not isinstance(divergence, Divergence):
        return
    average = isinstance(divergence, ProjectedDivergence | InducingKL)
    if not average or divergence.context is not None:
        warnings.warn(
            f"{type(divergence).__name__}"
            f"{' with a context' if average else ''} is not an average over the rows of a batch. "
            "Each replica evaluates it at its own rows, as for a smaller batch, and the average "
            "over replicas is what is minimised: it need not be exactly that of one worker.",
            NumericsWarning,
            stacklevel=4,
        )

"""Training: `compile` and `fit` as Keras has them, with many steps in one compiled call."""

from __future__ import annotations

import abc
import os
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import Module

from .. import checks, labels, networks
from ..errors import NumericsWarning
from .backup import assign_values, below, numbered, read_arrays, write_arrays
from .batches import ArrayBatches, Batches, as_batches
from .callbacks import KerasView, backups, callback_list, checked
from .epochs import Epochs, Work
from .guard import LossTerms
from .replicas import require_in_scope, require_one_dtype, scope, strategy_of, warn_unless_average
from .steps import TrainingSteps, ValidationSteps


class Trainable(Module, abc.ABC):
    """A model with an objective, trained as a Keras model is.

        model.compile("adam")
        history = model.fit((X, Y), epochs=100, batch_size=100, validation_data=(X_new, Y_new))

    The optimiser and the callbacks are those of Keras 3 or of tf_keras. Made and compiled in the
    scope of a `tf.distribute` strategy, it is trained by all replicas of that, which share the rows
    of each batch.
    """

    num_data: Any
    likelihood: Any = None
    _compiled: Compiled | None = None

    @abc.abstractmethod
    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        """Return the training loss of a batch, and its terms."""

    @property
    @abc.abstractmethod
    def _term_names(self) -> tuple[str, str]:
        """What to call the two terms."""

    def compile(
        self,
        optimizer: Any = "adam",
        *,
        steps_per_execution: int = 100,
        jit_compile: bool = False,
    ) -> None:
        """Choose how `fit` trains.

        :param optimizer: an optimiser of Keras 3 or tf_keras, or the name of one of Keras 3.
        :param steps_per_execution: how many steps, at most, one call of the compiled loop does.
            Callbacks are told of batches, and an interrupt is heard, between such calls.
        :param jit_compile: whether XLA compiles a step, anew for each size of a batch. It is rarely
            faster without an accelerator.
        """
        checks.count("steps_per_execution", steps_per_execution)
        self._compiled = Compiled(self, optimizer, steps_per_execution, jit_compile)

    def fit(
        self,
        data: Any,
        *,
        epochs: int = 1,
        batch_size: int | None = 100,
        verbose: int | str = "auto",
        callbacks: Iterable[Any] | None = None,
        validation_data: Any = None,
        shuffle: bool = True,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        seed: int = 0,
    ) -> Any:
        """Train, and return Keras's `History` of the training loss and its two terms.

        The loss of an epoch is the training loss of its batches, averaged over their rows, while
        the parameters change. `val_loss` is the training loss of the validation data after the
        epoch, with networks as in inference.

        A step whose loss or gradient is not finite changes nothing and raises
        `NonFiniteLossError`. Killed and started again by the same program, a training with Keras's
        `BackupAndRestore` among its callbacks goes on after the last complete epoch and ends where
        it would have ended undisturbed. For that a Dataset has to give the same batches again, and
        random operations have to keep their state in variables, as the dropout of Keras 3 does.

        :param data: arrays (X, Y), or a `tf.data.Dataset` of batches (X, Y).
        :param epochs: the number of the epoch before which to stop.
        :param batch_size: rows in a batch of arrays; None for all of them.
        :param verbose: 0 for silence, 1 or "auto" for a progress bar, 2 for a line in each epoch.
        :param callbacks: of Keras 3 or tf_keras. Their `self.model` is this model, and has what
            Keras's callbacks need as well.
        :param validation_data: as `data`.
        :param shuffle: whether each pass over arrays has an order of its own; a Dataset keeps its.
        :param initial_epoch: the number of the first epoch.
        :param steps_per_epoch: batches in an epoch, if not those of one pass over the data. One
            pass follows the other then.
        :param seed: of the orders; each depends on the seed and the number of its pass alone.
        """
        compiled, callbacks = self._require_compiled(), checked(callbacks)
        checks.count("epochs", epochs, least=0)
        checks.count("initial_epoch", initial_epoch, least=0)
        of_training, of_validation = compiled.steps(self)
        training = as_batches(
            "data",
            data,
            batch_size=batch_size,
            seed=_whole(seed) if shuffle else None,
            steps_per_epoch=steps_per_epoch,
            likelihood=self.likelihood,
        )
        _warn_of_other_number(self.num_data, training)
        if isinstance(training, ArrayBatches):
            labels.warn_of_missing(self.likelihood, training.data[1])
        validation = None
        if validation_data is not None:
            batches = as_batches(
                "validation_data",
                validation_data,
                batch_size=batch_size,
                seed=None,
                likelihood=self.likelihood,
            )
            validation = Work("test", of_validation, batches)
        view = KerasView(self, compiled.optimizer)
        told = callback_list(view, callbacks, verbose=verbose, epochs=epochs, steps=training.steps)
        state = (*self.weights, *compiled.state)
        work = Epochs(
            view,
            Work("train", of_training, training),
            validation,
            told,
            backups(callbacks, state, told.callbacks),
            compiled.steps_per_execution,
        )
        with scope(compiled.strategy):
            work.run(initial_epoch, epochs)
        return view.history

    def _require_compiled(self) -> Compiled:
        if self._compiled is None:
            raise RuntimeError(
                f"fit: this {type(self).__name__} has no optimiser yet. Call compile(optimizer) "
                "first, for example model.compile('adam')."
            )
        return self._compiled

    @property
    def weights(self) -> tuple[tf.Variable, ...]:
        """All variables: those that are trained, those that are not, and the state of the rest."""
        return tuple({id(v): v for v in (*self.variables, *networks.state(self))}.values())

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Return the values of the weights."""
        return [variable.numpy() for variable in self.weights]

    def set_weights(self, weights: Iterable[Any]) -> None:
        """Assign values to the weights, in the order of `get_weights`."""
        assign_values(self.weights, list(weights), source="weights")

    def save_weights(
        self, filepath: str | os.PathLike[str], overwrite: bool = True, **_: Any
    ) -> None:
        """Write the values of the weights to an HDF5 file, whole or not at all."""
        if os.path.exists(filepath) and not overwrite:
            raise FileExistsError(f"filepath {filepath} exists; pass overwrite=True to replace it.")
        write_arrays(filepath, {f"weights/{k}": v for k, v in numbered(self.weights).items()})

    def load_weights(self, filepath: str | os.PathLike[str], **_: Any) -> None:
        """Assign what `save_weights` wrote, from a model that was built in the same way."""
        weights = below("weights", read_arrays(filepath))
        assign_values(self.weights, weights, source=f"filepath {filepath}")


class Compiled:
    """How a model is trained. It belongs to the one model: a copy is compiled anew.

    :param model: the model.
    :param optimizer: an optimiser of Keras 3 or tf_keras, or the name of one of Keras 3.
    :param steps_per_execution: at most so many steps in one call.
    :param jit_compile: whether XLA compiles a step.
    """

    def __init__(
        self, model: Trainable, optimizer: Any, steps_per_execution: int, jit_compile: bool
    ) -> None:
        self.strategy = strategy_of(model.trainable_variables)
        with scope(self.strategy):
            self.optimizer = _optimizer(optimizer)
        self.steps_per_execution = steps_per_execution
        self.jit_compile = jit_compile
        if self.strategy is not None:
            own = [v if isinstance(v, tf.Variable) else v.value for v in self.state]
            require_in_scope(self.strategy, own, "the optimiser")
            if self.strategy.num_replicas_in_sync > 1:
                require_one_dtype(model.trainable_variables)
                warn_unless_average(getattr(model, "divergence", None))
        self._variables: tuple[tf.Variable, ...] | None = None
        self._parts: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies and pickles of the model hold None in this place."""
        return type(None), ()

    @property
    def state(self) -> tuple[Any, ...]:
        """The variables of the optimiser, with the learning rate, which tf_keras leaves out."""
        own = (*self.optimizer.variables, getattr(self.optimizer, "learning_rate", None))
        return tuple({id(part): part for part in own if hasattr(part, "assign")}.values())

    def steps(self, model: Trainable) -> tuple[TrainingSteps, ValidationSteps]:
        """Return the steps, traced anew only if a part of the model is another one now."""
        variables = model.trainable_variables
        if self._variables is None:
            with scope(self.strategy):
                self.optimizer.build(list(variables))
            self._variables = variables
        if not _same(variables, self._variables):
            raise ValueError(
                "fit: other variables are trainable now than when the optimiser was first used. "
                "Call compile with a new optimiser."
            )
        parts = tuple(part for name, part in vars(model).items() if not name.startswith("_"))
        if not _same(parts, self._parts):
            self._parts = parts
            objective, state = model._objective, networks.state(model)
            options = {"jit_compile": self.jit_compile}
            self._steps = (
                TrainingSteps(objective, variables, state, self.optimizer, **options),
                ValidationSteps(objective, state, **options),
            )
        return self._steps


def _same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def _optimizer(optimizer: Any) -> Any:
    """Return an optimiser that can be built and applied, made from its name if it is one."""
    if isinstance(optimizer, str):
        import keras

        return keras.optimizers.get(optimizer)
    if not hasattr(optimizer, "apply_gradients") or not hasattr(optimizer, "build"):
        raise TypeError(
            f"optimizer is {optimizer!r}; it must be the name of an optimiser of Keras, or an "
            "optimiser of keras.optimizers or tf_keras.optimizers. Others (such as "
            "gpflow.optimizers.Scipy) take model.training_loss_closure(data)."
        )
    return optimizer


def _whole(seed: int) -> int:
    if not isinstance(seed, int | np.integer):
        raise ValueError(f"seed is {seed!r}; it must be a whole number (or pass shuffle=False).")
    return int(seed)


def _warn_of_other_number(num_data: Any, batches: Batches) -> None:
    given = getattr(batches, "num_data", None)  # of a Dataset it is not known
    if given is not None and int(num_data) != given:
        warnings.warn(
            f"data has {given} rows, but the model has num_data={int(num_data)}, with which its "
            "objective is scaled. Pass num_data=len(X) to the model, or all of the data to fit.",
            NumericsWarning,
            stacklevel=3,
        )

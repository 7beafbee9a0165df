"""The surface: `compile`, `fit`, `evaluate` and `predict` as Keras has them."""

from __future__ import annotations

import abc
import os
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray, Module, TensorType
from gpflow.utilities import print_summary, tabulate_module_summary

from .._core import checks
from .._core.data import as_dataset, inputs
from .._core.network_function import NetworkFunction, weights_of
from .._core.network_graph import finalize
from .._core.tensorflow_private import untrained
from ..covariances.covariance import Covariance
from ..errors import short_repr
from .backup import assign_values, read_arrays, write_arrays
from .batches import ArrayBatches, as_batches
from .guard import LossTerms
from .trainer import Trainer


class Trainable(Module, abc.ABC):
    """A model with an objective, trained as a Keras model is.

        model.compile("adam", metrics=["mse"])
        history = model.fit(X, Y, epochs=100, batch_size=100, validation_data=(X_new, Y_new))
        model.evaluate(X_new, Y_new)

    The optimiser and the callbacks are those of Keras 3.
    """

    num_data: Any
    likelihood: Any = None
    _compiled: _Compiled | None = None

    @abc.abstractmethod
    def _objective(self, X: tf.Tensor, Y: tf.Tensor) -> tuple[tf.Tensor, LossTerms]:
        """Return the training loss of a batch, and its terms."""

    @property
    @abc.abstractmethod
    def _term_names(self) -> tuple[str, str]:
        """What to call the two terms."""

    def _predictive_mean(self, X: TensorType) -> tf.Tensor:
        """Return the predictions of `predict`, which metrics are given, too: [N, P]."""
        raise NotImplementedError(f"A {type(self).__name__} has no predictions.")

    def compile(
        self,
        optimizer: Any = "adam",
        *,
        metrics: Any = None,
        steps_per_execution: int = 100,
        jit_compile: bool = False,
        **others: Any,
    ) -> None:
        """Choose how `fit` trains; layers of networks that are frozen by now are left as they are.

        :param optimizer: an optimiser of Keras, or its name.
        :param metrics: metrics of Keras, or their names, of Y and of what `predict` returns. In
            training they are those of the parameters before each step. They cost a prediction.
        :param steps_per_execution: the maximal number of steps in one call of the compiled loop.
            Callbacks are notified of batches, and an interrupt is heeded, between such calls.
        :param jit_compile: whether XLA compiles a step, anew for each size of a batch. It is rarely
            faster without an accelerator.
        :param others: arguments of Keras that are refused, each with what to do instead.
        """
        _refuse("compile", others)
        checks.count("steps_per_execution", steps_per_execution)
        if not isinstance(optimizer, str | keras.optimizers.Optimizer):
            raise TypeError(
                f"optimizer is {short_repr(optimizer)}; it must be an optimiser of "
                "keras.optimizers, or the name of one. Others (such as gpflow.optimizers.Scipy, or "
                "those of tf_keras) take model.training_loss_closure(data)."
            )
        for part in self.submodules:
            if isinstance(part, NetworkFunction):
                part.take_flags()
        _require_one_device(self.trainable_variables)
        options = {"steps_per_execution": steps_per_execution, "jit_compile": jit_compile}
        self._compiled = _Compiled(Trainer(self, optimizer, metrics, **options))

    def fit(
        self,
        data: Any,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int | None = 100,
        verbose: int | str = "auto",
        callbacks: Iterable[Any] | None = None,
        validation_data: Any = None,
        validation_freq: int = 1,
        shuffle: bool = True,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        **others: Any,
    ) -> Any:
        """Train, and return Keras's `History` of the training loss, its two terms and the metrics.

        The loss of an epoch is the training loss of its batches, averaged over their rows, while
        the parameters change. `val_loss` is the training loss of the validation data after the
        epoch, with networks as in inference.

        A step whose loss or gradient is not finite changes nothing and raises
        `NonFiniteLossError`. Killed and started again by the same program, a training with Keras's
        `BackupAndRestore` among its callbacks goes on after the last complete epoch and ends where
        it would have ended undisturbed. For that a Dataset has to give the same batches again, and
        random operations have to keep their state in variables, as the dropout of Keras 3 does.

        :param data: arrays (X, Y), or X alone, or a `tf.data.Dataset` or `PyDataset` of batches
            (X, Y). Numbers of any type are cast to GPflow's default float; a vector Y is one
            column. A Dataset of unknown length is counted, by one pass over it.
        :param y: Y, if `data` is X alone.
        :param epochs: the number of the epoch before which to stop.
        :param batch_size: rows in a batch of arrays; None for all of them.
        :param verbose: 0 for silence, 1 or "auto" for a progress bar, 2 for a line in each epoch.
        :param callbacks: those of Keras. Their `self.model` is a Keras model around
            this one, with all of its attributes.
        :param validation_data: as `data`.
        :param validation_freq: the number of epochs from one validation to the next.
        :param shuffle: whether each pass over arrays has an order of its own; a Dataset keeps its.
        :param initial_epoch: the number of the first epoch.
        :param steps_per_epoch: batches in an epoch, if not those of one pass over the data. One
            pass follows the other then.
        :param seed: the seed of the orders; each depends only on it and the number of the pass.
        :param others: arguments of Keras that are refused, each with what to do instead.
        """
        trainer = self._require_compiled("fit")
        _refuse("fit", others)
        callbacks = _checked(callbacks)
        checks.count("epochs", epochs, least=0)
        checks.count("initial_epoch", initial_epoch, least=0)
        checks.count("validation_freq", validation_freq)
        if shuffle:
            checks.count("seed", seed, least=0)
        data = data if y is None else (data, y)
        options: dict[str, Any] = {"batch_size": batch_size, "likelihood": self.likelihood}
        training = as_batches(
            "data",
            data,
            seed=seed if shuffle else None,
            steps_per_epoch=steps_per_epoch,
            **options,
        )
        if isinstance(training, ArrayBatches):
            training.data.warn_of_missing_classes()
            training.warn_of_other_number(self.num_data)
        warn_of_default_kernel(getattr(self, "kernel", None))
        validation = None
        if validation_data is not None:
            validation = as_batches("validation_data", validation_data, **options)
        return trainer.train(
            training,
            validation,
            callbacks,
            epochs=range(initial_epoch, epochs),
            validation_freq=validation_freq,
            verbose=verbose,
        )

    def evaluate(
        self,
        data: Any,
        y: Any = None,
        *,
        batch_size: int | None = 100,
        verbose: int | str = "auto",
        return_dict: bool = False,
    ) -> Any:
        """Return the training loss of data, its two terms and the metrics, as `val_loss` is made.

        :param data: as in `fit`.
        :param y: Y, if `data` is X alone.
        :param batch_size: rows in a batch of arrays; None for all of them.
        :param verbose: as in `fit`.
        :param return_dict: whether to return them by their names, instead of in a list.
        """
        trainer = self._require_compiled("evaluate")
        data = data if y is None else (data, y)
        batches = as_batches("data", data, batch_size=batch_size, likelihood=self.likelihood)
        logs = trainer.test(batches, verbose=verbose)
        return logs if return_dict else list(logs.values())

    def predict(
        self, X: Any, *, batch_size: int | None = None, verbose: int | str = "auto"
    ) -> AnyNDArray:
        """Return the mean of y at X, of class likelihoods the probabilities of classes: [N, P].

        :param X: the inputs, [N, D...], or a `tf.data.Dataset` or `PyDataset` of batches X or
            (X, Y).
        :param batch_size: rows in a batch of arrays; 1000 if not given.
        :param verbose: 0 for silence, otherwise a progress bar.
        """
        if batch_size is not None:
            checks.count("batch_size", batch_size)
        X = as_dataset(X)
        if isinstance(X, tf.data.Dataset):
            batches = (inputs("X", row[0] if isinstance(row, tuple) else row) for row in X)
            target = None
        else:
            X, size = inputs("X", X), batch_size or 1000
            batches = (X[i : i + size] for i in range(0, len(X), size))
            target = -(-len(X) // size)
        progress = keras.utils.Progbar(target) if verbose else None
        predict = self._predictive_mean
        if target != 1:  # one batch is not worth a trace
            predict = tf.function(predict, autograph=False, reduce_retracing=True)
        means = []
        for batch in batches:
            means.append(predict(batch).numpy())
            if progress is not None:
                progress.add(1)
        return np.concatenate(means)

    def summary(self, fmt: str | None = None, print_fn: Any = None) -> None:
        """Show GPflow's table of the parameters; "trainable" are the ones that training changes.

        :param fmt: the format of the table, as in `gpflow.utilities.print_summary`.
        :param print_fn: what is called with the table, as in Keras; standard output if not given.
        """
        with self._flags_of_training():
            if print_fn is None:
                print_summary(self, fmt)
            else:
                print_fn(tabulate_module_summary(self, fmt))

    def _representation_table(self, object_name: str, tablefmt: str | None) -> str:
        """Return the table that IPython and Jupyter show."""
        with self._flags_of_training():
            return str(super()._representation_table(object_name, tablefmt))

    def _flags_of_training(self) -> AbstractContextManager[None]:
        """Within a block, let flags of variables select the ones that this model trains.

        A part that this model leaves as it is (P) may be trained elsewhere, and its own flags,
        which GPflow's table shows, say so.
        """
        trained = {id(variable) for variable in self.trainable_variables}
        return untrained(each for each in self.variables if id(each) not in trained)

    @property
    def optimizer(self) -> Any:
        """The optimiser that the model was compiled with; None before."""
        return None if self._compiled is None else self._compiled.trainer.optimizer

    @property
    def stop_training(self) -> bool:
        """Whether training ends with this epoch, which a callback says; `fit` starts with False."""
        # Keras asks for it before it sets it.
        return self._compiled is not None and vars(self._compiled.trainer).get(
            "stop_training", False
        )

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        self._require_compiled("stop_training").stop_training = value

    def _require_compiled(self, caller: str) -> Trainer:
        if self._compiled is None:
            raise RuntimeError(
                f"{caller}: this {type(self).__name__} has no optimiser yet. Call "
                "compile(optimizer) first, for example model.compile('adam')."
            )
        return self._compiled.trainer

    @property
    def weights(self) -> tuple[tf.Variable, ...]:
        """All variables: those that are trained, those that are not, and the state of the rest."""
        return weights_of(self)

    def get_weights(self) -> list[np.ndarray[Any, Any]]:
        """Return the values of the weights."""
        return [variable.numpy() for variable in self.weights]

    def set_weights(self, weights: Iterable[Any]) -> None:
        """Assign values to the weights, in the order of `get_weights`."""
        assign_values(self.weights, list(weights), source="weights")
        finalize(self)

    def save_weights(
        self, filepath: str | os.PathLike[str], overwrite: bool = True, **_: Any
    ) -> None:
        """Write the values of the weights to an HDF5 file, whole or not at all."""
        if os.path.exists(filepath) and not overwrite:
            raise FileExistsError(f"filepath {filepath} exists; pass overwrite=True to replace it.")
        write_arrays(filepath, {"weights": self.weights})

    def load_weights(self, filepath: str | os.PathLike[str], **_: Any) -> None:
        """Assign what `save_weights` wrote, from a model that was built in the same way."""
        weights = read_arrays(filepath).get("weights", [])
        assign_values(self.weights, weights, source=f"filepath {filepath}")
        finalize(self)


class _Compiled:
    """What trains the one model; it is no part of it. A copy, saved or not, is compiled anew."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def __reduce__(self) -> tuple[Any, ...]:
        """Let copies and pickles of the model hold None in this place."""
        return type(None), ()


def _refuse(method: str, others: dict[str, Any]) -> None:
    """Raise if there are arguments that Keras's method has, or none has."""
    instead = {
        "loss": "The model has one: pass loss=gpflow_gvi.losses.... where you make it.",
        "validation_split": "Split the rows, and pass validation_data=(X, Y).",
        "validation_batch_size": "Validation data have the batch_size of data.",
        "sample_weight": "Pass it to learn(data, sample_weight=...), for real-valued Y.",
    }
    for name, value in others.items():
        remedy = f"Leave it out; help(model.{method}) lists what {method} takes."
        raise TypeError(
            f"{name} is {short_repr(value)}, but {method} takes no such argument. "
            f"{instead.get(name, remedy)}"
        )


def _checked(callbacks: Any) -> list[keras.callbacks.Callback]:
    """Return the callbacks as a list, or raise if one of them could not do its work."""
    if callbacks is None:
        return []
    callbacks = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    for callback in callbacks:
        kind = type(callback).__name__
        if not isinstance(callback, keras.callbacks.Callback):
            raise TypeError(
                f"callbacks has {short_repr(callback)}, which is no callback of keras.callbacks."
            )
        if getattr(callback, "save_weights_only", True) is False:
            raise ValueError(
                f"callbacks has a {kind} with save_weights_only=False, but Keras has no file "
                "format for a Gaussian process. Pass save_weights_only=True and a name that ends "
                "in .weights.h5, which model.load_weights reads."
            )
        if getattr(callback, "histogram_freq", 0):
            raise ValueError(
                f"callbacks has a {kind} with histogram_freq={callback.histogram_freq}; it must be "
                "0: a Gaussian process has no layers to draw histograms of."
            )
        if isinstance(callback, keras.callbacks.BackupAndRestore) and callback.save_freq != "epoch":
            raise ValueError(
                f"callbacks has a {kind} with save_freq={callback.save_freq!r}; it must be "
                "'epoch': a training is resumed from the end of an epoch."
            )
    return callbacks


def _require_one_device(variables: Iterable[tf.Variable]) -> None:
    """Raise if variables were made for several devices or machines: one step trains one copy."""
    for variable in variables:
        strategy: Any = getattr(variable, "distribute_strategy", None)
        if strategy is not None and strategy.num_replicas_in_sync > 1:
            raise ValueError(
                f"compile: the model was made in the scope of a {type(strategy).__name__} of "
                f"{strategy.num_replicas_in_sync} replicas, but it is trained by one. Make it "
                "outside of that scope."
            )


def warn_of_default_kernel(kernel: Any) -> None:
    """Warn of a kernel of P that is as GPflow makes it, as training Q does not change it.

    GPflow's kernels start with ones for all of their parameters. A P that was conditioned on data
    has been fitted to them. A closure of SVGP's bound (`InducingKL`) does not call this, as P may
    be trained beside Q by it.
    """
    parameters = getattr(kernel, "trainable_parameters", ())
    if not parameters or isinstance(kernel, Covariance):
        return
    if all(np.all(parameter.numpy() == 1.0) for parameter in parameters):
        warnings.warn(
            f"All hyper-parameters of P's {type(kernel).__name__} are 1, where GPflow starts them, "
            "and P is not trained. Fit P by fit_regulariser((X, Y), kernel, M), or set them.",
            stacklevel=3,
        )

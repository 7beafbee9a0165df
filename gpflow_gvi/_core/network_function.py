"""The adaptor: a neural network as a GPflow module that is a function of X.

A network is a model or layer of Keras 3, or a function. GPflow finds the variables of a function
that is a `tf.Module`; those of Keras 3 it does not, and they are listed here.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf
from gpflow.base import Module, TensorType
from gpflow.config import default_float

from ..errors import short_repr
from .memo import once
from .mode import is_training
from .network_graph import copy_attributes, finalize, is_written, own_objects
from .state import Stateful, state

OF_CONFIG = (
    "Keras makes a network again from `get_config()`: let __init__ of the class take **kwargs and "
    "hand them on, and write get_config if it has arguments of its own."
)


class NetworkFunction(Stateful):
    """A network h as a function from X [N, D] to [N, F].

    Trainable weights of Keras are in `weights`, by number and name. It computes in the network's
    own precision: X is cast to it, and h(X) back to that of X (`in_precision` makes a network of
    another). Rows of X are reshaped to what the network takes, flat images for one.

    Dropout and batch normalisation behave as in Keras: with `training=True` while a training loss
    is evaluated, and with `training=False` otherwise and where all weights are frozen. Regularisers
    of weights enter the objective of a model (`penalties`).

    Layers that are to keep their weights are frozen (`layer.trainable = False`) beforehand, or
    before `compile` of a model; with `gpflow.set_trainable` all weights can be frozen at any time.

    :param network: what to call. A network that does not know the shape of its inputs makes its
        weights when it is first called, which must not be in training.
    """

    # GPflow would train the state if the user has all variables trained.
    _TF_MODULE_IGNORED_PROPERTIES = Module._TF_MODULE_IGNORED_PROPERTIES | {"_state"}

    def __init__(self, network: Callable[..., Any]) -> None:
        super().__init__()
        if not callable(network):
            raise TypeError(
                f"network is {short_repr(network)}; it must be a model of Keras 3, or a function."
            )
        require_keras_3(network)
        inputs = getattr(network, "inputs", None) or () if is_keras(network) else ()
        if len(inputs) > 1:
            raise ValueError(
                f"network is {short_repr(network)}, which has {len(inputs)} inputs; it "
                "must have one. Pass it to learn(data, network=...), which takes dictionaries."
            )
        self.network = network
        self.take_flags()
        self._known = False

    @once
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return h(X): [N, F]."""
        X = tf.convert_to_tensor(X)
        rows = self._rows(X)
        value = self._call(tf.cast(rows, self._dtype or X.dtype))
        if isinstance(value, dict | list | tuple):
            raise TypeError(
                f"network {self._title} returns a {type(value).__name__}; it must return one "
                "tensor."
            )
        if is_training(self) and self.trainable_variables:
            _require_no_losses_of_calls(self.network, self._title)
        value = tf.cast(value, X.dtype)
        if value.shape.rank not in (2, None):
            raise ValueError(
                f"network {self._title} returns shape {tuple(value.shape)} for inputs of shape "
                f"{tuple(rows.shape)}; it must be [N, F], one row for each input. End it with a "
                "Flatten or a Dense layer."
            )
        return value

    @property
    def state(self) -> list[tf.Variable]:
        """Values that training changes without gradients, as moving statistics: never trained."""
        return self._state

    @property
    def num_outputs(self) -> int:
        """The number F of columns of h(X), if the network declares it without an input."""
        shape = _static_shape(self.network, "output_shape")
        if shape is None or shape[-1] is None:
            raise AttributeError(f"num_outputs: network {self._title} does not know it yet.")
        return int(shape[-1])

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one row of X, if the network declares it."""
        return _row_shape(_static_shape(self.network, "input_shape"))

    @property
    def _title(self) -> str:
        name = getattr(self.network, "name", None) or getattr(self.network, "__name__", "")
        return f"{type(self.network).__name__} {name!r}"

    def _rows(self, X: tf.Tensor) -> tf.Tensor:
        """Return X with rows of the shape that the network takes."""
        wanted = self.input_shape
        given = _row_shape(X.shape)
        if wanted is None or given == wanted:
            return X
        if given is None:
            return X if (X.shape.rank or 0) > 2 else tf.reshape(X, [-1, *wanted])
        sizes, wanted_sizes = ([size for size in shape if size > 1] for shape in (given, wanted))
        permuted = sizes != wanted_sizes and sorted(sizes) == sorted(wanted_sizes)
        if math.prod(given) == math.prod(wanted) and not permuted:
            return tf.reshape(X, [-1, *wanted])
        raise ValueError(
            f"X has rows of shape {given}, but network {self._title} takes rows of shape {wanted}."
        )

    def _call(self, X: tf.Tensor) -> Any:
        options = {}
        if _takes_training(self.network):
            frozen = bool(self.weights) and not self.trainable_variables
            options["training"] = is_training(self) and not frozen
        network = functools.partial(self.network, **options)
        if not tf.executing_eagerly():
            # This package traces its graphs without AutoGraph, which takes longer than the rest of
            # it; but a network may count on it, as for `if` on a tensor.
            network = tf.function(network)
        if self._known:
            return network(X)
        with tf.GradientTape() as tape:
            value = network(X)
        self._take_new_weights()
        _warn_of_hidden_weights(self.network, self._title, tape.watched_variables())
        self._known = True
        return value

    def take_flags(self) -> None:
        """Train the weights of layers that are not frozen now, as `compile` of Keras does.

        The other variables of the network are noted.
        """
        self.weights = trainable_weights(self.network)
        trained = {id(variable) for variable in self.weights.values()}
        variables = all_variables(self.network)
        # Listed for checkpoints, which do not find the random generators of Keras. The weights of
        # layers that the user froze are trainable variables, but of no use here.
        self._state = [v for v in variables if id(v) not in trained and not v.trainable]
        self._dtype = type_of_inputs(self.network, variables)

    def _take_new_weights(self) -> None:
        """Look again for weights after the first call, in which many networks make them."""
        found = trainable_weights(self.network).values()
        if [*map(id, found)] == [*map(id, self.weights.values())]:
            return
        if is_training() or not tf.executing_eagerly():
            raise ValueError(
                f"network {self._title} has made its weights only now, when the optimiser already "
                "had its list of variables. Give it the shape of its inputs (keras.Input as its "
                "first layer, or network.build((None, D))), or predict once before training."
            )
        self.take_flags()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the network, and find the variables of the new one in it."""
        trainable = {name: weight.trainable for name, weight in self.weights.items()}
        state = [variable.numpy() for variable in self.state]
        return restored, (type(self), self.network, trainable, state)

    def __deepcopy__(self, memo: dict[int, Any]) -> NetworkFunction:
        """Copy the network, and find the variables of the copy in it."""
        restore, arguments = self.__reduce__()
        try:
            with own_objects(self.network), warnings.catch_warnings():
                # That of a network which is compiled and was never trained has no variables yet.
                warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
                try:
                    arguments = copy.deepcopy(arguments, memo)
                except (NotImplementedError, TypeError, ValueError):
                    if not is_written(self.network):
                        raise
                    copy_attributes(self.network, memo)
                    arguments = copy.deepcopy(arguments, memo)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise TypeError(
                f"network {self._title} cannot be copied, as training does, a covariance with a "
                f"kernel of its own and gpflow.utilities.deepcopy. {OF_CONFIG}"
            ) from error
        return restore(*arguments)


def as_function(network: Callable[..., Any]) -> NetworkFunction:
    """Return a network as a `NetworkFunction`; the same one in several places is called once."""
    return network if isinstance(network, NetworkFunction) else NetworkFunction(network)


def require_config(network: Any) -> None:
    """Raise if Keras cannot make a model, `is_written`, again."""
    if is_written(network):
        try:
            with own_objects(network):
                type(network).from_config(network.get_config())
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(
                f"{type(network).__name__} has no configuration. {OF_CONFIG}"
            ) from error


def in_precision(network: Any, dtype: Any = None) -> Any:
    """Return a copy of a built Keras model that computes in another precision.

    No cast is needed then, and `gpflow.optimizers.Scipy`, which wants all variables to be of one
    precision, trains a float64 model together with its network.

    :param network: a Sequential or functional model of Keras.
    :param dtype: its new precision; GPflow's default float if not given.
    """
    shape = _static_shape(network, "input_shape")
    if not is_keras(network) or shape is None:
        raise TypeError(
            f"network is {short_repr(network)}; in_precision takes a Keras model that knows its "
            "input_shape. Other networks have to be made in the precision that is wanted."
        )
    name = tf.as_dtype(default_float() if dtype is None else dtype).name
    names = ("float16", "bfloat16", "mixed_float16", "mixed_bfloat16", "float32", "float64")
    config = network.get_config()
    config = keras.tree.map_structure(lambda each: name if each in names else each, config)
    with own_objects(network):
        result = type(network).from_config(config)
    if not result.built:
        result.build(shape)
    result.set_weights(network.get_weights())
    finalize(result)
    return result


def penalties(module: tf.Module) -> tf.Tensor:
    """Return the sum of the penalties of Keras's regularisers on its trainable weights: []."""
    parts = (part for part in module.submodules if isinstance(part, NetworkFunction))
    networks: list[Any] = [part.network for part in parts if is_keras(part.network)]
    weights = {id(w.value): w for network in networks for w in network.trainable_weights}
    found = (weights[key] for key in map(id, module.trainable_variables) if key in weights)
    terms = [weight.regularizer(weight.value) for weight in found if weight.regularizer]
    return sum((tf.cast(term, default_float()) for term in terms), tf.zeros([], default_float()))


def weights_of(module: tf.Module) -> tuple[tf.Variable, ...]:
    """Return all variables of a module, with those of frozen layers, in an order without flags."""
    functions = (part for part in module.submodules if isinstance(part, NetworkFunction))
    of_networks = {id(v): v for each in functions for v in all_variables(each.network)}
    all_others = {id(v): v for v in (*module.variables, *state(module))}
    others = (v for key, v in all_others.items() if key not in of_networks)
    return (*others, *of_networks.values())


def _require_no_losses_of_calls(network: Any, title: str) -> None:
    """Raise if layers add losses of what they return, not only of their weights."""
    layers = (network, *getattr(network, "layers", ())) if is_keras(network) else ()
    found = [
        layer.name
        for layer in layers
        if len(layer.losses) > sum(w.regularizer is not None for w in layer.trainable_weights)
    ]
    if found:
        raise ValueError(
            f"network {title} has an activity_regularizer or add_loss in layer {found[-1]!r}, "
            "which the training here leaves out. Remove it, as P regularises what Q returns, or "
            "freeze the network (network.trainable = False) before it is passed."
        )


def restored(
    kind: type[NetworkFunction], network: Any, trainable: dict[str, bool], state: list[Any]
) -> NetworkFunction:
    function = kind(network)
    for weight, flag in zip(function.weights.values(), trainable.values(), strict=True):
        weight._trainable = flag  # as gpflow.set_trainable does
    if is_keras(network):  # others have their values already
        for variable, value in zip(function.state, state, strict=True):
            variable.assign(value)
    return function


def _warn_of_hidden_weights(network: Any, title: str, used: Iterable[tf.Variable]) -> None:
    known = {id(variable) for variable in all_variables(network)}
    hidden = [variable.name for variable in used if id(variable) not in known]
    if hidden:
        warnings.warn(
            f"network {title} uses variables that are not trained, as it is a function: "
            f"{', '.join(hidden)}. To train them pass a model or a layer of Keras 3.",
            UserWarning,
            stacklevel=5,
        )


def _takes_training(network: Any) -> bool:
    if is_keras(network):
        return True
    try:
        return "training" in inspect.signature(network).parameters
    except (TypeError, ValueError):
        return False


def _static_shape(network: Any, name: str) -> tuple[int | None, ...] | None:
    """Return `input_shape` or `output_shape` of a network with one input or output, if known."""
    try:
        shape = getattr(network, name, None)
    except (RuntimeError, ValueError):
        return None
    return tuple(shape) if isinstance(shape, tuple) and len(shape) > 1 else None


def _row_shape(shape: Any) -> tuple[int, ...] | None:
    """Return the shape of one row, if it is known."""
    sizes = tf.TensorShape(shape)[1:]
    return tuple(sizes) if sizes.is_fully_defined() else None


def is_keras(network: Any) -> bool:
    """Return True if this is a layer or a model of Keras 3."""
    return isinstance(network, keras.layers.Layer)


def require_keras_3(network: Any) -> None:
    """Raise if a layer or a model is of tf_keras, or computes with anything but TensorFlow."""
    if any(base.__module__.startswith("tf_keras.") for base in type(network).__mro__):
        raise TypeError(
            f"network is {short_repr(network)} of tf_keras; it must be of Keras 3 (import keras). "
            "Or pass a function, lambda X: network(X), which is evaluated and not trained."
        )
    if is_keras(network) and keras.backend.backend() != "tensorflow":
        raise TypeError(
            f"network is a model of Keras with the backend {keras.backend.backend()!r}, and this "
            "package computes with TensorFlow. Set KERAS_BACKEND=tensorflow before keras is "
            "imported, and load the model again."
        )


def trainable_weights(network: Any) -> dict[str, tf.Variable]:
    """Return the trainable weights of a network of Keras by number and name, as `0.kernel`.

    The paths of Keras would not do: it numbers layers through (`dense_7`), and renames the
    variables of a copy when that is first called.
    """
    found = network.trainable_weights if is_keras(network) else ()
    for weight in found:
        weight.value._constraint = weight.constraint  # the optimisers of Keras ask for it
    return {f"{i}.{str(w.name).rpartition('/')[2]}": w.value for i, w in enumerate(found)}


def all_variables(network: Any) -> list[tf.Variable]:
    """Return all variables of a network, trained or not."""
    if is_keras(network):
        return [variable.value for variable in network.variables]
    return list(network.variables) if isinstance(network, tf.Module) else []


def type_of_inputs(network: Any, variables: Iterable[tf.Variable] = ()) -> tf.DType | None:
    """Return the type that X is cast to for a network, if not its own.

    It is that of the variables of the network, but whole numbers keep their values: layers of Keras
    cast their inputs by themselves, and not what they look up. bfloat16 has no word number 257, and
    float32 no key 2²⁴ + 1.
    """
    own = next((v.dtype for v in variables if v.dtype.is_floating), None)
    if not isinstance(network, keras.layers.Layer):
        return own
    declared = [tf.as_dtype(each.dtype) for each in getattr(network, "inputs", None) or ()]
    if declared and declared[0].is_integer:
        return declared[0]
    floats = [each for each in declared if each.is_floating] or [tf.float32]
    return own and max(own, floats[0], key=lambda each: each.size)

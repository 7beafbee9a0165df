"""Contexts: where a divergence compares Q and P, if not at the training inputs alone.

A divergence is an average over inputs, and stands for an average over a measure ρ of inputs. Where
ρ has no mass nothing ties Q to P: at the training inputs alone a network goes its own way between
and beyond the data. With a context Q is held to P wherever that has points,

    D[Q, P] = E_{C ~ ρ} D[Q_C, P_C],   C the points of one evaluation.

Sun, Zhang, Shi and Grosse (2019), "Functional variational Bayesian neural networks", call C the
measurement set; Rudner, Chen, Teh and Gal (2022), "Tractable function-space variational inference
in Bayesian neural networks", its points context points.

    context = TrainingInputs() + UniformBox(X.min(axis=0) - 1.0, X.max(axis=0) + 1.0)
    model = PGVI(P, Q, likelihood, ProjectedRenyi(context=context), num_data=len(X))

Inputs are those that the model sees: standardised, where it is trained on standardised ones. The
points are a batch of their own for networks: batch normalisation, in training, takes its statistics
from both.
"""

from __future__ import annotations

import abc

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import TensorType
from gpflow.config import default_float

from .._core import checks
from .._core.data import inputs
from .._core.state import Stateful, constant


class Context(Stateful):
    """A measure of inputs, by points that may depend on those of the batch.

    The sum of two contexts has the points of both: it is the mixture of their measures, in the
    proportion of their numbers of points.
    """

    @check_shapes(
        "X: [N, D...]",
        "return: [C, D...]",
    )
    def __call__(self, X: TensorType) -> tf.Tensor:
        """Return the points for the inputs X of a batch: [C, D...]."""
        return self.numbered(tf.convert_to_tensor(X), 0)

    def __add__(self, other: Context) -> Union:
        return Union(self, other) if isinstance(other, Context) else NotImplemented

    @property
    def state(self) -> tuple[tf.Variable, ...]:
        """What drawing points changes: undone with a failed step of training, kept in a backup."""
        return ()

    def numbered(self, X: tf.Tensor, number: int) -> tf.Tensor:
        """Return the points of the part of this number in a sum, so that no two parts are alike."""
        points = self._points(X, number)
        kind = type(self).__name__
        if points.dtype != X.dtype:
            raise TypeError(
                f"context {kind} has points of dtype {points.dtype.name}, but X has dtype "
                f"{X.dtype.name}; make both in GPflow's default float."
            )
        return _as_rows_of(X, points, f"context {kind} has points")

    @abc.abstractmethod
    def _points(self, X: tf.Tensor, number: int) -> tf.Tensor:
        """Return the points: [C, D...]."""


class TrainingInputs(Context):
    """The inputs of the batch themselves, to which others are added."""

    def _points(self, X: tf.Tensor, number: int) -> tf.Tensor:
        return X


class Union(Context):
    """The points of several contexts together; what `+` makes of two."""

    def __init__(self, *contexts: Context) -> None:
        super().__init__()
        # Sums of sums are one sum, in which each part has a number of its own.
        self.parts: tuple[Context, ...] = tuple(
            part
            for context in contexts
            for part in (context.parts if isinstance(context, Union) else (context,))
        )

    def _points(self, X: tf.Tensor, number: int) -> tf.Tensor:
        return tf.concat(
            [part.numbered(X, number + i) for i, part in enumerate(self.parts)], axis=0
        )


class RandomContext(Context):
    """A context with new points at each evaluation.

    They depend on the seed, and on how often points were drawn before. An optimiser has to live
    with a noisy objective then, as with minibatches: Adam does, and L-BFGS does not. For L-BFGS
    draw once, `Inputs(context(X))`. In `fit` validation sees the points of the next step of
    training, and leaves them to it.

    :param num_points: C; None for as many as the batch has rows.
    :param seed: the seed of the points.
    """

    # Neither trained nor a parameter; `_core.state.state` finds it.
    _TF_MODULE_IGNORED_PROPERTIES = Context._TF_MODULE_IGNORED_PROPERTIES | {"counter"}

    def __init__(self, num_points: int | None = None, *, seed: int = 0) -> None:
        super().__init__()
        if num_points is not None:
            checks.count("num_points", num_points)
        checks.count("seed", seed, least=0)
        self.num_points = num_points
        self.counter = tf.Variable([seed, 0], dtype=tf.int64, trainable=False)

    @property
    def state(self) -> tuple[tf.Variable, ...]:
        """The seed, and how often points were drawn."""
        return (self.counter,)

    def _points(self, X: tf.Tensor, number: int) -> tf.Tensor:
        seed = tf.random.fold_in(tf.identity(self.counter.assign_add([0, 1])), number)
        C = X.shape[0] if self.num_points is None else self.num_points
        return self._draw(X, tf.shape(X)[0] if C is None else C, seed)

    @abc.abstractmethod
    def _draw(self, X: tf.Tensor, C: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return C points, which depend on the seed alone and on X: [C, D...]."""


class UniformBox(RandomContext):
    """Points of the uniform law on a box.

    :param lower: its lower end, one number or of the shape of a row of X.
    :param upper: its upper end, likewise. Other arguments are those of `RandomContext`.
    """

    def __init__(
        self,
        lower: TensorType,
        upper: TensorType,
        num_points: int | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(num_points, seed=seed)
        self.lower, self.upper = (
            constant(tf.convert_to_tensor(end, dtype=default_float())) for end in (lower, upper)
        )
        if self.lower.shape != self.upper.shape:
            raise ValueError(
                f"lower has shape {tuple(self.lower.shape)} and upper has shape "
                f"{tuple(self.upper.shape)}; both must be one number, or of the shape of a row."
            )
        checks.positive("upper - lower", self.upper - self.lower)

    def _draw(self, X: tf.Tensor, C: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        lower, upper = _of_row(X, self.lower, "lower"), _of_row(X, self.upper, "upper")
        shape = [C, *tf.unstack(tf.shape(X)[1:])]
        unit = tf.random.stateless_uniform(shape, seed, dtype=lower.dtype)
        return lower + (upper - lower) * unit


class GaussianNoise(RandomContext):
    """Inputs of the batch, moved: x + ε with ε ~ N(0, scale²).

    :param scale: standard deviation of the noise, one number or of the shape of a row of X.
    :param num_points: C, of rows drawn with replacement; None for each row of the batch once.
    """

    def __init__(self, scale: TensorType, num_points: int | None = None, *, seed: int = 0) -> None:
        super().__init__(num_points, seed=seed)
        self.scale = constant(tf.convert_to_tensor(scale, dtype=default_float()))
        checks.positive("scale", scale)

    def _draw(self, X: tf.Tensor, C: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        of_rows, of_noise = tf.unstack(tf.random.split(seed, 2))
        scale = _of_row(X, self.scale, "scale")
        rows = X if self.num_points is None else _some_rows(X, C, of_rows)
        noise = tf.random.stateless_normal(tf.shape(rows), of_noise, dtype=scale.dtype)
        return rows + scale * noise


class Inputs(RandomContext):
    """The inputs of another data set: all of them each time, or some.

    With all of them nothing is random, as L-BFGS needs it. The inputs are saved with the model.

    :param X: the inputs, [N, D...].
    :param num_points: C, of rows drawn with replacement; None for all rows.
    """

    def __init__(self, X: TensorType, num_points: int | None = None, *, seed: int = 0) -> None:
        super().__init__(num_points, seed=seed)
        self.X = inputs("X", X)

    def _points(self, X: tf.Tensor, number: int) -> tf.Tensor:
        return self.X if self.num_points is None else super()._points(X, number)

    def _draw(self, X: tf.Tensor, C: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return _some_rows(self.X, C, seed)


def _some_rows(X: tf.Tensor, C: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    N = tf.shape(X, out_type=tf.int64)[0]
    rows = tf.random.stateless_uniform([C], seed, minval=0, maxval=N, dtype=tf.int64)
    return tf.gather(X, rows)


def _as_rows_of(X: tf.Tensor, values: tf.Tensor, what: str) -> tf.Tensor:
    """Return values in the shape of the rows of X: images as flat rows, where X are that."""
    given, wanted = values.shape[1:], X.shape[1:]
    if given.is_compatible_with(wanted):
        return values
    if given.num_elements() != wanted.num_elements():
        raise ValueError(
            f"{what} of shape {tuple(given)}, but the rows of X have shape {tuple(wanted)}; they "
            "must be the same, or at least as many numbers."
        )
    return tf.reshape(values, [-1, *wanted])


def _of_row(X: tf.Tensor, value: tf.Tensor, name: str) -> tf.Tensor:
    """Return a value that is one number, or has one for each of a row."""
    return value if value.shape.rank == 0 else _as_rows_of(X, value[None], f"{name} is")

"""How Q is trained, and what becomes of it afterwards: tempering and calibration."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from .parts import BY_KIND, OR_NAME, Count, Off, Part, Positive

LOOK = 50
"""Where an epoch is one pass over the data, several make up at most so many steps between looks."""


class _Optimiser(Part):
    learning_rate: Positive = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    """Whether the rate falls along a cosine, to zero at the last step."""

    def _rate(self, steps: int) -> Any:
        import keras

        if self.schedule == "constant":
            return self.learning_rate
        return keras.optimizers.schedules.CosineDecay(self.learning_rate, steps)


class Adaptive(_Optimiser):
    """An optimiser of Keras with a step length of its own for each variable."""

    kind: Literal["adam", "adamax", "adamw", "nadam", "rmsprop"]

    def build(self, steps: int) -> Any:
        """Return the optimiser for so many steps."""
        import keras

        names = {"adamw": "AdamW", "rmsprop": "RMSprop"}
        return getattr(keras.optimizers, names.get(self.kind, self.kind.capitalize()))(
            self._rate(steps)
        )


class SGD(_Optimiser):
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    momentum: Annotated[float, Field(strict=True, ge=0.0, le=1.0)] = 0.9

    def build(self, steps: int) -> Any:
        """Return the optimiser for so many steps."""
        import keras

        return keras.optimizers.SGD(self._rate(steps), momentum=self.momentum)


Optimiser = Annotated[Adaptive | SGD, BY_KIND, OR_NAME]


class HeldOutStopping(Part):
    """Stop when held-out data do not gain any more, and take the weights of their best epoch."""

    kind: Literal["held_out"] = "held_out"
    patience: Count = 5
    """Epochs without a gain."""


EarlyStopping = Annotated[Off | HeldOutStopping, BY_KIND, OR_NAME]


class Course(NamedTuple):
    """The epochs of a training, as `fit` is told of them."""

    epochs: int
    batch_size: int
    steps_per_epoch: int

    @property
    def steps(self) -> int:
        """The number of steps in all."""
        return self.epochs * self.steps_per_epoch


class Training(Part):
    """Epochs and batches."""

    epochs: Annotated[int, Field(strict=True, ge=0)] = 20
    batch_size: Count | None = 200
    """null for all rows."""
    steps_per_epoch: Count | None = 50
    """null for one pass over the data."""
    early_stopping: EarlyStopping = HeldOutStopping()

    def course(self, N: int) -> Course:
        """Return the epochs for N rows; short passes are put together, as a look has its price."""
        batch_size = min(self.batch_size or N, N)
        if self.steps_per_epoch is not None:
            return Course(self.epochs, batch_size, self.steps_per_epoch)
        steps = -(-N // batch_size)
        most = max(1, LOOK // steps)
        passes = next(n for n in range(most, 0, -1) if self.epochs % n == 0)
        return Course(self.epochs // passes, batch_size, passes * steps)


class HeldOutTempering(Part):
    """The factor of best predictive density of the held-out data."""

    kind: Literal["held_out"] = "held_out"


Tempering = Annotated[Off | HeldOutTempering, BY_KIND, OR_NAME]


class Conformal(Part):
    """Intervals, or sets of classes, with a guarantee."""

    kind: Literal["conformal"] = "conformal"
    fraction: Annotated[float, Field(strict=True, gt=0.0, lt=1.0)] = 0.2
    """The fraction of the rows for training that is set aside."""
    coverage: Annotated[float, Field(strict=True, gt=0.0, lt=1.0)] = 0.95


Calibration = Annotated[Off | Conformal, BY_KIND, OR_NAME]

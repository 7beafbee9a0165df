"""The length of training Q, its optimiser, and its early stopping."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

EPOCHS = 20
"""The epochs by default: a mean that starts at P's has little to learn."""

STEPS_ALONE = 5000
"""The steps, at least, that a network which alone is m_Q may take by default, as it learns all."""


class Schedule(NamedTuple):
    """The epochs of a training in batches; validation data are evaluated after each epoch."""

    epochs: int
    batch_size: int
    steps_per_epoch: int

    @property
    def steps(self) -> int:
        """The number of steps in all."""
        return self.epochs * self.steps_per_epoch


@dataclasses.dataclass(frozen=True)
class Passes:
    """Epochs of several passes over the data each, and of more where these take few steps."""

    epochs: int | None = None
    """The maximal number of epochs; by default `EPOCHS`, or what takes `STEPS_ALONE` if that is
    more and a network alone is m_Q."""
    batch_size: int = 200
    passes: int = 2
    """The number of passes over the data in an epoch."""
    min_steps: int = 50
    """The minimal number of steps in an epoch, as a validation has its cost."""

    def __call__(self, num_rows: int, network_alone: bool = False) -> Schedule:
        """Return the schedule for this number of rows.

        :param network_alone: whether the mean of Q is a network to which nothing is added.
        """
        steps = max(self.min_steps, self.passes * num_rows // self.batch_size)
        epochs = self.epochs
        if epochs is None:
            epochs = max(EPOCHS, -(-STEPS_ALONE // steps)) if network_alone else EPOCHS
        return Schedule(epochs, min(self.batch_size, num_rows), steps)


@dataclasses.dataclass(frozen=True)
class CosineAdam:
    """Adam with a learning rate that falls along a cosine, to zero at the last step."""

    learning_rate: float = 3e-3

    def __call__(self, steps: int) -> Any:
        """Return the optimiser for this number of steps."""
        import keras

        rate = keras.optimizers.schedules.CosineDecay(self.learning_rate, steps)
        return keras.optimizers.Adam(rate)


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stop when validation data gain no more, and keep the weights of their best epoch."""

    patience: int | None = None
    """The number of epochs without a gain after which training stops.

    By default it is a quarter of all, and five at least: few validation data gain or lose by
    chance, and a learning rate that falls gains at its end.
    """

    def patience_of(self, epochs: int) -> int:
        """Return the patience in a training of this number of epochs."""
        return max(5, epochs // 4) if self.patience is None else self.patience

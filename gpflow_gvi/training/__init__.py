"""Training as Keras has it, and the guard against losses that are not finite.

`trainable` has the methods. They call a compiled `loop` of steps over `batches`; the steps and
metrics are those of `trainer`, a Keras model around the model. A `backup` is what a training that
was killed goes on from.
"""

from .trainable import Trainable

__all__ = ["Trainable"]

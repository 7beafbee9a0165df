"""Training: `compile` and `fit` as Keras has them, and the guard against non-finite losses.

`trainable` has the two methods. `epochs` runs over `batches` in compiled `steps`, tells the
`callbacks`, and keeps a `backup`, from which a training that was killed goes on.
"""

from .trainable import Trainable

__all__ = ["Trainable"]

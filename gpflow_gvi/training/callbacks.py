"""The callbacks of Keras that a training may have."""

from __future__ import annotations

from typing import Any

import keras

from ..errors import short_repr


def checked(callbacks: Any) -> list[keras.callbacks.Callback]:
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

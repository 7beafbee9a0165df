"""Whether a process is put around a network, and if it is for these classes, pixels and units."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.base import AnyNDArray
from gpflow.config import default_float
from scipy.optimize import linear_sum_assignment

from ..._core import labels, network_layers
from ..._core.network_function import as_function
from ..._core.network_graph import parts_of
from ...errors import NumericsWarning
from .network_data import inputs_of
from .network_rows import MIN_PROBABILITY, Inputs, logits
from .reach import BLOCK

MIN_GAIN = 0.1
"""Another order must be more accurate by this much, and by `STANDARD_ERRORS` standard errors."""

STANDARD_ERRORS = 5.0

MIN_RATIO = 2.0
"""Beyond this ratio of a network's error to that of the mean of Y, its units are doubted: a network
that was hardly trained has less."""


def is_put_around(network: Any, features: Any, train_network: bool | None, data: Any) -> bool:
    """Return True if a process is put around a network, not a network into Q's mean."""
    if network is None:
        return False
    X = inputs_of(data)
    is_of_images = isinstance(X, dict) or len(getattr(X, "shape", ())) > 2
    is_fixed = train_network is not None and not train_network
    asked = features is not None or is_fixed or isinstance(network, list | tuple)
    embeds = network_layers.has_layer(network, "Embedding")
    is_of_several = len(getattr(network, "outputs", None) or ()) > 1 or bool(parts_of(network))
    return asked or is_of_images or embeds or is_of_several


def order_of(names: Sequence[Any] | None, classes: AnyNDArray | None, K: int) -> tuple[int, ...]:
    """Return the column of the network of each sorted class; empty if the order is the same.

    :param names: the class of each column, as `learn` is given them.
    :param K: the number of classes that the network has columns for.
    """
    if names is None:
        if classes is not None:
            require_as_many(classes, K)
        return ()
    columns = np.asarray(names)
    if classes is None or columns.shape != (K,) or set(columns) != set(classes):
        found = None if classes is None else classes.tolist()
        raise ValueError(
            f"classes is {columns.tolist()}; it must name the class of each column of the network, "
            f"and Y has the classes {found}."
        )
    return () if np.array_equal(columns, classes) else tuple(np.argsort(columns).tolist())


def columns_of(order: tuple[int, ...]) -> Callable[[AnyNDArray], tf.Tensor]:
    """Return the map from class indices to the columns of a network, by `order_of`."""
    return lambda Y: tf.constant(
        (np.asarray(order)[Y.astype(int)] if order else Y).astype(np.int32)
    )


def require_as_many(classes: AnyNDArray, K: int) -> None:
    """Raise if Y has other than the K classes that a network has columns for."""
    if len(classes) == K:
        return
    labels.require_two_classes(classes)
    few = "pass classes=[...], the names of all in the order of the columns"
    raise ValueError(
        f"network has columns for {K} classes, but Y has {len(classes)}, "
        f"{classes[:10].tolist()}: "
        + (few if len(classes) < K else f"give it {len(classes)} outputs")
        + "."
    )


def require_order(h: AnyNDArray, Y: AnyNDArray, classes: AnyNDArray | None) -> None:
    """Raise if the columns of a network fit the labels far better in another order.

    :param h: logits, [N, K], or those of the second class, [N, 1].
    :param Y: class indices, [N, 1].
    """
    best, sorted_, column = _accuracies(h, Y)
    K, N = len(column), len(Y)
    error = np.sqrt(max(best * (1.0 - best), 1.0 / N) / N)
    if best - sorted_ > max(MIN_GAIN, STANDARD_ERRORS * error):
        names = np.arange(K) if classes is None else classes
        wanted = names[np.argsort(column)].tolist()
        raise ValueError(
            f"network has an accuracy of {sorted_:.3f} if its columns are the sorted classes, and "
            f"of {best:.3f} in another order. Pass classes={wanted}, if this is the class of each "
            "column, or the right order."
        )


def _accuracies(h: AnyNDArray, Y: AnyNDArray) -> tuple[float, float, AnyNDArray]:
    """Return the accuracy in the best order of columns and in theirs, and the best order, [K]."""
    K = max(h.shape[1], 2)
    predicted = np.argmax(h, axis=1) if h.shape[1] > 1 else (h[:, 0] > 0.0).astype(int)
    counts = np.zeros((K, K))
    np.add.at(counts, (Y[:, 0].astype(int), predicted), 1.0)
    rows, best = linear_sum_assignment(-counts)
    return np.sum(counts[rows, best]) / len(Y), np.trace(counts) / len(Y), best


def scale_that_fits(
    network: Any, inputs: Inputs, X: AnyNDArray, Y: AnyNDArray, kind: str | None
) -> Inputs:
    """Return the inputs of a network: pixels in bytes as they are, if these fit Y far better.

    The order of its columns does not matter here.

    :param inputs: what it takes, as far as is known.
    :param Y: class indices, [N, 1], or numbers, [N, J].
    :param kind: that of `Outputs`.
    """
    if not inputs.scales_pixels or X.dtype != np.uint8:
        return inputs
    function, raw = as_function(network), inputs._replace(scales_pixels=False)
    N = min(len(X), len(Y), BLOCK)
    fits = []
    for each in (inputs, raw):
        h = function(tf.cast(each.floats(X[:N]), default_float()))
        name, fit = _fit(np.asarray(logits(h) if kind == "probabilities" else h), Y[:N], kind)
        fits.append(fit)
    if not fits[1] > fits[0] + MIN_GAIN / 2:
        return inputs
    warnings.warn(
        f"X has pixels in bytes. Divided by 255, as is usual, the network has {name} "
        f"{fits[0]:.3f}, and as they are {fits[1]:.3f}: they are taken as they are. "
        "Give floats of the right scale, or a network that begins with keras.layers.Rescaling.",
        NumericsWarning,
        stacklevel=4,
    )
    return raw


def _fit(h: AnyNDArray, Y: AnyNDArray, kind: str | None) -> tuple[str, float]:
    """Return the name and the value of a score of h for Y, larger where h fits better."""
    if kind is None:
        spread = np.mean(np.var(Y, axis=0)) or 1.0
        return "the R²", float(max(1.0 - np.mean(np.square(Y - h)) / spread, 0.0))
    if h.shape[1] > 1:
        return "the accuracy", _accuracies(h, Y)[0]
    signed = h * (2.0 * Y - 1.0)
    factors = np.geomspace(1e-2, 1e2, 41) / np.sqrt(np.mean(np.square(h)) + MIN_PROBABILITY)
    scores = [-np.mean(np.logaddexp(0.0, -a * signed)) for a in (*factors, *-factors)]
    return "at its best temperature the log score", float(max(scores))


def warn_of_units(h: AnyNDArray, Y: AnyNDArray) -> None:
    """Warn if a network, which returns h, predicts numbers far worse than their mean does."""
    error, spread = np.sqrt(np.mean(np.square(Y - h))), np.sqrt(np.mean(np.var(Y, axis=0)))
    if error > MIN_RATIO * spread:
        warnings.warn(
            f"the network misses Y by {error:.4g} (root mean square), and the mean of Y by "
            f"{spread:.4g}. Is it for other units? It has to return those of Y.",
            NumericsWarning,
            stacklevel=6,
        )

"""Which column of a network is which class: as it is said, or in sorted order, if that fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpflow.base import AnyNDArray
from scipy.optimize import linear_sum_assignment

MIN_GAIN = 0.1
"""Of accuracy: by as much another order has to fit better, and by `STANDARD_ERRORS`."""

STANDARD_ERRORS = 5.0


def order_of(names: Sequence[Any] | None, classes: AnyNDArray | None) -> tuple[int, ...]:
    """Return the column of the network of each class, sorted; empty if the order is the same.

    :param names: the class of each column, as `learn` is given them.
    :param classes: the classes, sorted: [K].
    """
    if names is None:
        return ()
    columns = np.asarray(names)
    if classes is None or columns.shape != classes.shape or set(columns) != set(classes):
        found = None if classes is None else classes.tolist()
        raise ValueError(
            f"classes is {columns.tolist()}; it must name the class of each column of the network, "
            f"and Y has the classes {found}."
        )
    order = tuple(int(np.flatnonzero(columns == each)[0]) for each in classes)
    return () if order == tuple(range(len(order))) else order


def require_order(h: AnyNDArray, Y: AnyNDArray, classes: AnyNDArray | None) -> None:
    """Raise if the columns of a network fit the labels far better in another order.

    :param h: logits, [N, K], or those of the second class, [N, 1].
    :param Y: numbers of classes, [N, 1].
    :param classes: what they are called, if they have names: [K].
    """
    K = max(h.shape[1], 2)
    predicted = np.argmax(h, axis=1) if h.shape[1] > 1 else (h[:, 0] > 0.0).astype(int)
    counts = np.zeros((K, K))
    np.add.at(counts, (Y[:, 0].astype(int), predicted), 1.0)  # label, column
    _, column = linear_sum_assignment(-counts)
    N = len(Y)
    best, sorted_ = (np.sum(counts[np.arange(K), of]) / N for of in (column, np.arange(K)))
    error = np.sqrt(max(best * (1.0 - best), 1.0 / N) / N)
    if best - sorted_ > max(MIN_GAIN, STANDARD_ERRORS * error):
        names = np.arange(K) if classes is None else classes
        wanted = names[np.argsort(column)].tolist()
        raise ValueError(
            f"network has an accuracy of {sorted_:.3f} if its columns are the sorted classes, and "
            f"of {best:.3f} in another order. Pass classes={wanted}, if this is the class of each "
            "column, or the right order."
        )

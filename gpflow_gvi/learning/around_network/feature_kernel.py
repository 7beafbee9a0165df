"""The default kernel around a network, on features of it."""

from __future__ import annotations

import numpy as np
from gpflow.base import AnyNDArray
from gpflow.kernels import Kernel, Linear, SquaredExponential, Sum
from gpflow.utilities import set_trainable
from scipy.spatial.distance import pdist

from .network_rows import NetworkInputs

MAX_ROWS_OF_DISTANCES = 1000
"""The median distance is that of not more rows than these."""


def feature_kernel(rows: AnyNDArray, of: NetworkInputs) -> Kernel:
    """Return the sum of a squared exponential for each group of features.

    The lengthscale is half the median distance between rows, and the variance that of h, about its
    average over classes. They are not fitted: labels would have the kernel ignore whatever does not
    help to tell classes apart, by which new inputs are known.

    :param rows: in standard units, [N, J + F].
    """
    kernels = kernels_of_groups(rows, of)[: len(of.num_features)]
    return kernels[0] if len(kernels) == 1 else Sum(kernels)


def kernels_of_groups(rows: AnyNDArray, of: NetworkInputs) -> list[Kernel]:
    """Return the kernel of each group of features, and of principal components if there are any.

    Those of features have variances that add up to that of h.
    """
    h = rows[:, : of.num_outputs]
    if of.num_outputs > 1:
        h = h - h.mean(axis=1, keepdims=True)
    variance = float(np.mean(np.square(h))) or 1.0
    start, kernels = of.num_outputs, []
    for size in (*of.num_features, 0 if of.axes is None else of.axes.shape[1]):
        columns = slice(start, start + size)
        start += size
        if size:
            distance = float(np.median(pdist(rows[:MAX_ROWS_OF_DISTANCES, columns])))
            kernel = SquaredExponential(
                variance=variance / len(of.num_features),
                lengthscales=0.5 * distance if distance > 0.0 else 1.0,
                active_dims=columns,
            )
            set_trainable(kernel, False)
            kernels.append(kernel)
    return kernels


def widening(kernel: Kernel, num_columns: int) -> Kernel:
    """Return w(x) w(x') k(x, x') for rows [..., w(x), s(x)]: `reach`."""
    wider = kernel * Linear(active_dims=[num_columns - 2])
    set_trainable(wider, False)
    return wider

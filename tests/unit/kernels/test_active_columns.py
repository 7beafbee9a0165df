"""Kernels of some columns, against their values at these alone."""

from __future__ import annotations

import numpy as np
import pytest
from gpflow.kernels import Linear, Matern32, SquaredExponential

from gpflow_gvi.kernels.active_columns import on_columns
from tests.tolerances import assert_close

KERNELS = {
    "one": SquaredExponential,
    "of some columns": lambda: Matern32(active_dims=[1, 4]),
    "of a slice": lambda: Matern32(active_dims=slice(1, 4, 2)),
    "product": lambda: (
        SquaredExponential(lengthscales=np.arange(1.0, 6.0)) * Linear(active_dims=[1, 4])
    ),
    "sum of products": lambda: Linear() + SquaredExponential() * Matern32(active_dims=[0]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_columns_of_a_kernel_are_those_of_the_rows_that_it_is_put_on(rng, name):
    X = rng.normal(size=(6, 8))
    kernel = KERNELS[name]()
    columns = [7, 2, 3, 0, 5]
    found = on_columns(kernel, columns)
    assert_close(found(X), kernel(X[:, columns]))
    assert_close(found(X, full_cov=False), kernel(X[:, columns], full_cov=False))
    assert found is not kernel

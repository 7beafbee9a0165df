"""Short names of kernels and mean functions, for people to read."""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
from gpflow.functions import Additive, Constant, Zero
from gpflow.functions import Product as ProductOfMeans
from gpflow.kernels import Combination, MultioutputKernel, Product, Stationary, Sum


def kernel_name(kernel: Any) -> str:
    """Return the name of a kernel, such as "3 ARD SquaredExponential + Linear"."""
    if isinstance(kernel, MultioutputKernel) and not isinstance(kernel, Combination):
        of_latents = _counted([kernel_name(latent) for latent in kernel.latent_kernels])
        return f"{type(kernel).__name__}({of_latents})"
    if of := getattr(kernel, "inputs_in_words", None):
        return f"{kernel_name(kernel.base_kernel)}, of {of}"
    if not isinstance(kernel, Sum | Product):
        scales = getattr(kernel, "lengthscales", ())  # their values take long to compute
        is_ard = isinstance(kernel, Stationary) and math.prod(np.shape(scales)) > 1
        return "ARD " * is_ard + type(kernel).__name__
    names = [kernel_name(part) for part in kernel.kernels]
    if isinstance(kernel, Product):
        return " * ".join(f"({name})" if " + " in name else name for name in names)
    return _counted(names)


def _counted(names: list[str]) -> str:
    counts = collections.Counter(names)
    return " + ".join(name if n == 1 else f"{n} {name}" for name, n in counts.items())


def mean_name(mean: Any) -> str:
    """Return the name of a mean function, such as "0.62 HistGradientBoostingRegressor"."""
    if isinstance(mean, Zero):
        return "zero"
    if isinstance(mean, Additive):
        return f"{mean_name(mean.add_1)} + {mean_name(mean.add_2)}"
    if isinstance(mean, ProductOfMeans):
        return f"{mean_name(mean.prod_1)} {mean_name(mean.prod_2)}"
    if type(mean) is Constant:
        return ", ".join(f"{value:.2f}" for value in np.ravel(mean.c))
    models = [getattr(model, "model", model) for model in getattr(mean, "models", ())]
    if not models:
        return type(mean).__name__
    name = predictor_name(models[0])
    return name if len(models) == 1 else f"{name} ({len(models)} folds)"


def predictor_name(model: Any) -> str:
    """Return the name of a predictor, or of the predictor in a pipeline of scikit-learn."""
    if steps := getattr(model, "steps", ()):
        return predictor_name(steps[-1][1])
    if regressor := getattr(model, "regressor", None):  # whose targets are transformed
        return predictor_name(regressor)
    return str(getattr(model, "__name__", type(model).__name__))

"""The minimum of Branin's function, 0.397887, in a few evaluations."""

import numpy as np

from gpflow_gvi.integrations.bayesian_optimisation import ExpectedImprovement, minimise


def branin(x):
    """Return Branin's function at x, which has two coordinates."""
    a, b = x
    quadratic = b - 5.1 * a**2 / (4.0 * np.pi**2) + 5.0 * a / np.pi - 6.0
    return quadratic**2 + 10.0 * (1.0 - 1.0 / (8.0 * np.pi)) * np.cos(a) + 10.0


result = minimise(
    branin,
    bounds=[(-5.0, 10.0), (0.0, 15.0)],
    num_initial=10,
    num_steps=2,  # about 20 steps reach the minimum to a hundredth
    acquisition=ExpectedImprovement(),
    seed=1,
)
for x, y in zip(result.X, result.Y, strict=True):
    print(f"f({x[0]:7.3f}, {x[1]:7.3f}) = {y[0]:8.3f}")
print(f"the minimum is {result.fun:.3f}, at {result.x.round(3)}")

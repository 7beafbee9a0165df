"""The tolerances of all tests: three for each precision, and no others.

* `ROUNDING`: the same mathematics in another order of operations, or by another library.
* `ITERATIVE`: an iteration, a quadrature, a finite difference or a jitter stands between the two.
* statistical: `STANDARD_ERRORS` of what is estimated, and `P_VALUE` where a distribution is tested.

A test that needs more than these has an ill-conditioned example or compares the wrong things. How
well something is *learned* is no matter of tolerance: it is compared with a rival, with the noise,
or with a bound that follows from the example.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

STANDARD_ERRORS = 5.0
"""One right estimate in two million is further away."""

P_VALUE = 1e-5
"""That of a Kolmogorov-Smirnov or a χ² test: one right sample in a hundred thousand is below it."""


class Tolerance(NamedTuple):
    """An error relative to the size of what is compared, for each precision."""

    float64: float
    float32: float

    def of(self, precision: Any) -> float:
        """Return the tolerance of float64 or float32."""
        return self.float32 if np.dtype(precision) == np.float32 else self.float64


ROUNDING = Tolerance(float64=1e-9, float32=1e-4)
ITERATIVE = Tolerance(float64=1e-5, float32=1e-2)


def assert_close(
    actual: Any,
    expected: Any,
    tolerance: Tolerance = ROUNDING,
    *,
    scale: Any = None,
    precision: Any = None,
) -> None:
    """Assert |actual - expected| ≤ tolerance · scale; what is expected may be broadcast.

    :param scale: the size of what is compared: by default the largest |expected|, as errors of
        linear algebra are relative to norms; `np.abs(expected)` for each element's own; a number
        where what is expected is zero or the small difference of large numbers.
    :param precision: float32 where arithmetic was in float32; by default that of `actual`.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    if precision is None:
        precision = np.float32 if actual.dtype == np.float32 else np.float64
    if scale is None:
        finite = np.abs(expected[np.isfinite(expected)])
        scale = finite.max() if finite.size else 0.0
    bound = tolerance.of(precision) * np.asarray(scale)
    with np.errstate(invalid="ignore"):  # infinities that are equal, and those that are not
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        close = same | (np.abs(actual - expected) <= bound)
    assert np.all(close), (
        f"{np.sum(~close)} of {close.size} values are further apart than {np.max(bound):.3g}.\n"
        f"Found:\n{actual}\nExpected:\n{expected}\nDifference:\n{actual - expected}"
    )
    assert actual.shape == np.broadcast(actual, expected).shape, (
        f"Found the shape {actual.shape}, expected {expected.shape}."
    )


def assert_differ(actual: Any, other: Any) -> None:
    """Assert that some values differ by more than any comparison with `assert_close` forgives."""
    actual, other = np.asarray(actual), np.asarray(other)
    precision = np.float32 if actual.dtype == np.float32 else np.float64
    difference, scale = np.max(np.abs(actual - other)), np.max(np.abs(other))
    assert difference > ITERATIVE.of(precision) * scale, (
        f"The values differ by {difference:.3g} at most, with a scale of {scale:.3g}."
    )


def assert_estimates(estimate: Any, expected: Any, standard_error: Any) -> None:
    """Assert that an estimate is within `STANDARD_ERRORS` of what it estimates."""
    estimate, expected = np.asarray(estimate), np.asarray(expected)
    deviation = np.abs(estimate - expected) / np.asarray(standard_error)
    worst = np.max(deviation)
    assert worst <= STANDARD_ERRORS, (
        f"The estimate is {worst:.1f} standard errors away:\n{estimate}\nexpected:\n{expected}"
    )

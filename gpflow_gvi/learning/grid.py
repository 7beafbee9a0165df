"""Values of y on a grid: were they rounded to it?

Rounded values say of y that it is within δ/2, and have errors of δ/√12 even around the true
function: noise has at least that variance, and densities are compared by the mass of an interval.
Values that were set, as the levels of an experiment, are on a grid as well. They may be predicted
far better than that, and then all candidates would have the same mass.
"""

from __future__ import annotations

import numpy as np

from .candidate import Fitted
from .candidate_fits import MIN_NOISE, Fits


def is_of_rounding(fits: Fits, found: Fitted) -> bool:
    """Return True unless rows left out are predicted far better than rounding allows.

    Each of them is nearer to its own value then than to any other, too.
    """
    away = np.abs(found.left_out.Y - found.mean) / fits.spacing[: len(found.mean)]  # in δ
    most = fits.recipe.max_error_of_grid / np.sqrt(12.0)
    return bool(np.any(np.sqrt(np.mean(np.square(away), axis=0)) > most) or np.max(away) > 0.5)


def bounds_noise(fits: Fits) -> bool:
    """Return True if y is on a grid, and its noise is taken to be that of rounding at least."""
    return fits.noise_above is not None and bool(np.all(np.isfinite(fits.spacing)))


def forget(fits: Fits) -> None:
    """Let noise be less than that of rounding, and compare candidates by densities of y."""
    if fits.noise_above is not None:
        fits.spacing = np.full_like(fits.spacing, np.inf)
        fits.bounds_of_noise = MIN_NOISE, fits.bounds_of_noise[1]
        fits.likelihood = fits.noise_above(MIN_NOISE)

"""The integral of a Brownian motion: by quadrature, and as a smoothing spline of scipy."""

from __future__ import annotations

import gpflow
import numpy as np
import scipy.integrate
import scipy.interpolate

from gpflow_gvi.kernels import IntegratedBrownianMotion
from tests.tolerances import ITERATIVE, assert_close


def _by_quadrature(s, t, v):
    """∫∫ v min(|a|, |b|) over a between 0 and s, and b between 0 and t; zero on two sides."""
    if s * t <= 0.0:
        return 0.0
    s, t = sorted((abs(s), abs(t)))
    inner = lambda a: v * (0.5 * a**2 + a * (t - a))  # noqa: E731  (over b from 0 to t)
    return scipy.integrate.quad(inner, 0.0, s)[0]


def test_is_the_integral_of_the_covariance_of_a_brownian_motion(rng):
    X, X2 = rng.normal(size=(6, 1)), rng.normal(size=(4, 1))
    kernel = IntegratedBrownianMotion(1.7)
    for left, right in ((X, X2), (X, X)):
        expected = [[_by_quadrature(s, t, 1.7) for t in right[:, 0]] for s in left[:, 0]]
        assert_close(kernel(left, right), expected)
    assert_close(kernel(X), kernel(X, X))
    assert_close(kernel(X, full_cov=False), np.diag(kernel(X)))


def test_has_batches_and_columns(rng):
    X, X2 = rng.normal(size=(3, 5, 2)), rng.normal(size=(2, 4, 2))
    kernel = IntegratedBrownianMotion(0.4, active_dims=[1])
    both, own = kernel(X, X2), kernel(X)
    assert both.shape == (3, 5, 2, 4)
    for i in range(3):
        assert_close(own[i], kernel(X[i]))
        assert_close(both[i, :, 1], kernel(X[i], X2[1]))


def test_with_a_wide_line_the_posterior_mean_is_a_smoothing_spline(rng):
    x = np.sort(rng.uniform(-1.0, 2.0, size=30))
    y = np.sin(2.0 * x) + 0.1 * rng.normal(size=30)
    noise, v = 0.01, 5.0
    spline = scipy.interpolate.make_smoothing_spline(x, y, lam=noise / v)
    line = gpflow.kernels.Constant(1e5) + gpflow.kernels.Linear(1e5)
    kernel = line + IntegratedBrownianMotion(v)
    model = gpflow.models.GPR((x[:, None], y[:, None]), kernel, noise_variance=noise)
    at = np.linspace(-1.5, 3.0, 20)
    mean, _ = model.predict_f(at[:, None])
    assert_close(mean[:, 0], _straight_beyond(spline, x, at), ITERATIVE)


def _straight_beyond(spline, x, at):
    """A natural spline is a line beyond the data, which scipy's is not when it extrapolates."""
    inside = np.clip(at, x[0], x[-1])
    return spline(inside) + spline.derivative()(inside) * (at - inside)

"""What kernels have in common that differ in the values of their parameters alone."""

from __future__ import annotations

import gpflow
import numpy as np
import tensorflow_probability as tfp

from gpflow_gvi.kernels import AdditiveSpectralMixture, LogInputs
from gpflow_gvi.kernels.structure import structure_of


def _kernel(scale, **options):
    first = gpflow.kernels.SquaredExponential(scale, [scale, 1.0], **options)
    return first + AdditiveSpectralMixture(*np.full((3, 1, 2), scale))


def test_values_make_no_difference_and_all_else_does():
    assert structure_of(_kernel(0.5)) == structure_of(_kernel(2.0))
    rows = np.array([[1.0, 2.0], [3.0, 5.0]])
    fixed, narrow = gpflow.kernels.Matern52(), gpflow.kernels.Matern52()
    gpflow.set_trainable(fixed.variance, False)
    narrow.variance = gpflow.Parameter(1.0, transform=gpflow.utilities.positive(lower=0.1))
    kernels = [
        _kernel(1.0),
        _kernel(1.0, active_dims=[1, 0]),
        gpflow.kernels.Matern52(1.0, 0.5),
        gpflow.kernels.Matern52(1.0, [0.5, 0.7]),
        gpflow.kernels.Matern12(1.0, 0.5),
        gpflow.kernels.Matern52() * gpflow.kernels.Matern12(),
        gpflow.kernels.Matern52() + gpflow.kernels.Matern12(),
        fixed,
        narrow,
        LogInputs(gpflow.kernels.Matern52(), rows, np.array([0.0, np.nan])),
        LogInputs(gpflow.kernels.Matern52(), rows, np.array([-1.0, np.nan])),
        LogInputs(gpflow.kernels.Matern12(), rows, np.array([0.0, np.nan])),
    ]
    assert len(set(map(structure_of, kernels))) == len(kernels)


def test_a_kernel_of_a_class_that_is_not_known_has_no_structure():
    class Own(gpflow.kernels.SquaredExponential):
        """It may have more than its parameters."""

    assert structure_of(Own()) is None
    assert structure_of(gpflow.kernels.Matern52() * Own()) is None
    assert structure_of(LogInputs(Own(), np.ones([2, 1]) + np.eye(2)[:, :1], np.zeros(1))) is None


def test_long_priors_that_differ_in_one_number_differ():
    def kernel(last):
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(2000))
        location = np.append(np.zeros(1999), last)
        kernel.lengthscales.prior = tfp.distributions.LogNormal(location, np.float64(1.0))
        return kernel

    assert structure_of(kernel(0.0)) == structure_of(kernel(0.0))
    assert structure_of(kernel(0.0)) != structure_of(kernel(1e-12))
    middle = kernel(0.0)
    location = np.zeros(2000)
    location[1000] = 1.0
    middle.lengthscales.prior = tfp.distributions.LogNormal(location, np.float64(1.0))
    assert structure_of(kernel(0.0)) != structure_of(middle)

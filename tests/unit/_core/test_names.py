"""Short names of kernels and mean functions."""

from __future__ import annotations

import gpflow
import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpflow_gvi._core.names import kernel_name, mean_name, predictor_name
from gpflow_gvi.mean_functions import Predictor

RBF, LINEAR = gpflow.kernels.SquaredExponential, gpflow.kernels.Linear


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (RBF(), "SquaredExponential"),
        (RBF(lengthscales=[1.0, 2.0]), "ARD SquaredExponential"),
        (RBF() + LINEAR() + RBF(), "2 SquaredExponential + Linear"),
        ((RBF() + LINEAR()) * LINEAR(), "(SquaredExponential + Linear) * Linear"),
    ],
)
def test_kernels(kernel, name):
    assert kernel_name(kernel) == name


def test_mean_functions():
    ridge = Predictor(Ridge().fit(np.eye(2), [0.0, 1.0]))
    half = gpflow.functions.Constant([0.5])
    assert mean_name(gpflow.functions.Zero()) == "zero"
    assert mean_name(ridge) == "Ridge"
    assert mean_name(half * ridge + Predictor(np.sum)) == "0.50 Ridge + sum"
    assert mean_name(gpflow.functions.Linear()) == "Linear"


def test_a_predictor_is_named_by_what_predicts_in_it():
    pipeline = make_pipeline(StandardScaler(), Ridge())
    for model in (Ridge(), pipeline, TransformedTargetRegressor(pipeline)):
        assert predictor_name(model) == "Ridge"
    assert predictor_name(StandardScaler()) == "StandardScaler"

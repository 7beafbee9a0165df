"""Fits that runs keep: for what they are taken again, and for what not."""

from __future__ import annotations

import gpflow
import pytest

from gpflow_gvi.experiments.config import Experiment
from gpflow_gvi.experiments.run import RunHooks, Timer


@pytest.mark.parametrize("share", [False, True])
def test_a_fit_is_taken_again_for_the_same_data_alone(share, tmp_path):
    experiment, fits = Experiment(data="yacht"), []

    def fit():
        fits.append(None)
        return gpflow.kernels.Constant(float(len(fits)))

    for data, expected in (("a", 1.0), ("b", 2.0), ("a", 1.0)):
        hooks = RunHooks(experiment, data, tmp_path / "run", Timer(), share, tensorboard=False)
        assert hooks.regulariser(fit).variance.numpy() == expected

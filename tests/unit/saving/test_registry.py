"""The registry has all parts of models, and no name leads to anything else."""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import sys

import gpflow
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import gpflow_gvi as gvi
from gpflow_gvi.learning.rows.scaling import Scaling
from gpflow_gvi.saving import load, registry, save

KNOWN = (
    *(gpflow.kernels.Matern12, Scaling, gpflow.Parameter, gvi.networks.NetworkFunction),
    *(tfp.bijectors.Softplus, tfp.distributions.Normal, tf.math.exp),
)
"""Something of each kind."""

PACKAGES = ("gpflow", "gpflow_gvi", "gpflux", "tensorflow", "tensorflow_probability")


@pytest.mark.parametrize("known", KNOWN, ids=registry.name_of)
def test_names_lead_to_what_has_them(known):
    assert registry.find(registry.name_of(known), {}) is known


@pytest.mark.parametrize(
    "package",
    [
        *(gvi.covariances, gvi.divergences, gvi.divergences.wasserstein, gvi.kernels),
        *(gvi.kernels.nngp, gvi.losses, gvi.mean_functions, gvi.models, gvi.contexts),
        *(gpflow.kernels, gpflow.functions, gpflow.likelihoods, gpflow.inducing_variables),
    ],
    ids=lambda package: package.__name__,
)
def test_public_parts_are_known(package):
    """A concrete class of these packages that is a part of a model can be saved and loaded."""
    bases = (gpflow.base.Module, gvi.losses.Loss, gvi.divergences.wasserstein.CovarianceDistance)
    own = package.__name__.split(".")[0]
    parts = [
        cls
        for cls in vars(package).values()
        if isinstance(cls, type)
        and issubclass(cls, bases)
        and cls.__module__.split(".")[0] == own
        and cls not in bases
        and not inspect.isabstract(cls)
        and not issubclass(cls, gpflow.posteriors.AbstractPosterior)
    ]
    unknown = [cls for cls in parts if registry.qualified_name(cls) not in registry.table()]
    assert parts
    assert not unknown


def all_names():
    """The name of everything in every module of the packages that is loaded."""
    for module in list(sys.modules.values()):
        home = getattr(module, "__name__", "")
        if home.split(".")[0] in PACKAGES and inspect.ismodule(module):
            for name in list(vars(module)):
                yield f"{home}:{name}"


@pytest.mark.slow
def test_no_name_leads_to_anything_else(monkeypatch):
    """Every name of the packages is refused, or it is a part of a model."""
    names = [*all_names(), *(f"builtins:{name}" for name in vars(builtins))]
    assert len(names) > 10_000
    registry.table()  # imports the package's own modules
    monkeypatch.setattr(importlib, "import_module", lambda *_: pytest.fail("it was imported"))
    found = set()
    for name in names:
        try:
            found.add(registry.find(name, {}))
        except ValueError as error:
            assert "may not be used" in str(error)  # noqa: PT017
    functions = {thing for thing in found if not isinstance(thing, type)}
    assert {thing.__module__.split(".")[0] for thing in functions} <= {"gpflow", "tensorflow"}
    assert len(functions) < 60
    built = (gpflow.base.Module, gpflow.Parameter, tfp.bijectors.Bijector)
    built += (tfp.distributions.Distribution,)
    rest = [cls for cls in found - functions if not issubclass(cls, built)]
    assert {cls.__module__.partition(".")[0] for cls in rest} <= {"gpflow", "gpflow_gvi"}


@pytest.mark.slow
def test_known_names_in_the_wrong_places(tmp_path, monkeypatch):
    """What is known is built where it belongs, or loading ends with a ValueError."""
    save(gpflow.kernels.Matern12(), tmp_path / "saved")
    file = tmp_path / "saved" / "structure.json"
    whole = file.read_text()
    names = sorted(registry.table().keys() & set(all_names()))
    places = [
        '"class": "gpflow.kernels.stationaries:Matern12"',
        '"class": "gpflow.base:Parameter"',
        '"class": "tensorflow_probability.python.bijectors.softplus:Softplus"',
    ]
    monkeypatch.setattr("os.system", lambda *_: pytest.fail("it was called"))
    assert len(names) > 150
    for place in places:
        assert place in whole
        for name in names:
            file.write_text(whole.replace(place, f'"class": {json.dumps(name)}'))
            try:
                load(tmp_path / "saved")
            except ValueError:
                continue

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

SLOTS = {
    "object": gpflow.kernels.Matern12,
    "record": Scaling,
    "parameter": gpflow.Parameter,
    "constructed": tfp.bijectors.Softplus,
    "distribution": tfp.distributions.Normal,
    "network_function": gvi.networks.NetworkFunction,
    "value": tf.math.exp,
}
"""The places of names, each with something that belongs there."""

PACKAGES = ("gpflow", "gpflow_gvi", "gpflux", "tensorflow", "tensorflow_probability")


@pytest.mark.parametrize("slot", SLOTS)
def test_each_place_finds_what_belongs_there(slot):
    known = SLOTS[slot]
    assert registry.find(slot, registry.name_of(known), {}) is known


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
    unknown = [cls for cls in parts if not registry.is_known(registry.qualified_name(cls))]
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
    """Every name of the packages in every place: it is refused, or it is a part of a model."""
    names = [*all_names(), *(f"builtins:{name}" for name in vars(builtins))]
    assert len(names) > 10_000
    registry.places()  # imports the package's own modules
    monkeypatch.setattr(importlib, "import_module", lambda *_: pytest.fail("it was imported"))
    found = {slot: set() for slot in SLOTS}
    for name in names:
        for slot, things in found.items():
            try:
                things.add(registry.find(slot, name, {}))
            except ValueError:
                continue
        refused = ("enum", name) if name != "gpflow.base:PriorOn" else ("value", "")
        with pytest.raises(ValueError, match="may not be used"):
            registry.find(*refused, {})
    bijectors, distributions = tfp.bijectors.Bijector, tfp.distributions.Distribution
    assert all(issubclass(cls, (bijectors, distributions)) for cls in found["constructed"])
    assert all(issubclass(cls, distributions) for cls in found["distribution"])
    functions = {thing for thing in found["value"] if not isinstance(thing, type)}
    homes = {thing.__module__.split(".")[0] for thing in functions}
    assert homes <= {"gpflow", "tensorflow"}
    assert len(functions) < 60
    objects = found["object"]
    values = {thing for thing in found["value"] if isinstance(thing, type)}
    assert values == objects | found["constructed"]
    plain = [cls for cls in objects if not issubclass(cls, gpflow.base.Module)]
    assert {cls.__module__.partition(".")[0] for cls in plain} <= {"gpflow", "gpflow_gvi"}


@pytest.mark.slow
def test_known_names_in_the_wrong_places(tmp_path, monkeypatch):
    """What is known is built where it belongs, or loading ends with a ValueError."""
    save(gpflow.kernels.Matern12(), tmp_path / "saved")
    file = tmp_path / "saved" / "structure.json"
    whole = file.read_text()
    names = sorted(name for name in set(all_names()) if registry.is_known(name))
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

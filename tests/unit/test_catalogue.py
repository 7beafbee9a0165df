"""The catalogue that other tests walk is complete, and so are the lists of public names."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import gpflow_gvi as gvi
from tests import catalogue

PACKAGES = ["gpflow_gvi"] + [
    f"gpflow_gvi.{module.name}" for module in pkgutil.iter_modules(gvi.__path__) if module.ispkg
]


def _concrete(package, base):
    classes = {getattr(package, name) for name in package.__all__}
    return {kind for kind in classes if issubclass(kind, base) and not inspect.isabstract(kind)}


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (
            [make() for make in catalogue.DIVERGENCES.values()],
            _concrete(gvi.divergences, gvi.divergences.Divergence),
        ),
        (
            [make() for make in catalogue.LOSSES.values()],
            {
                kind
                for _, kind in inspect.getmembers(gvi.losses, inspect.isclass)
                if issubclass(kind, gvi.losses.Loss) and not inspect.isabstract(kind)
            },
        ),
        (
            [
                make(catalogue.kernels(1)["single"], [[0.0], [1.0]])
                for make in catalogue.COVARIANCES.values()
            ],
            _concrete(gvi.covariances, gvi.covariances.Covariance),
        ),
    ],
    ids=["divergences", "losses", "covariances"],
)
def test_catalogue_has_every_class(built, expected):
    assert {type(part) for part in built} == expected


@pytest.mark.parametrize("name", PACKAGES)
def test_public_names_exist_and_are_listed_once(name):
    package = importlib.import_module(name)
    public = list(package.__all__)
    assert len(set(public)) == len(public)
    for entry in public:
        assert getattr(package, entry) is not None
    assert set(public) <= set(dir(package))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_part"):
        _ = gvi.no_such_part

"""The lists of cases that other tests walk have every class of the package in them."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil

import gpflow
import pytest

import gpflow_gvi as gvi
from tests import catalogue, designs, references

MODULES = [
    module.name
    for module in pkgutil.walk_packages(gvi.__path__, "gpflow_gvi.")
    if not module.name.endswith("__main__")
]
PACKAGES = ["gpflow_gvi"] + [
    f"gpflow_gvi.{module.name}" for module in pkgutil.iter_modules(gvi.__path__) if module.ispkg
]


def concrete(base: type) -> set[type]:
    """The classes of the package below `base` that can be built, wherever they are defined."""
    below = {kind for direct in base.__subclasses__() for kind in {direct, *concrete(direct)}}
    return {
        kind
        for kind in below
        if kind.__module__.startswith("gpflow_gvi.") and not inspect.isabstract(kind)
    }


def conditioned(kernel: gpflow.kernels.Kernel) -> gpflow.kernels.Kernel:
    """The covariances that users get from `condition` alone; test_conditional.py is on them."""
    prior = gvi.GaussianProcess(gpflow.functions.Zero(), kernel)
    return prior.condition([[0.0], [1.0]], [[0.0], [1.0]], 0.1).kernel


BUILT = {
    "divergences": (
        lambda: gvi.divergences.Divergence,
        lambda: [make() for make in catalogue.DIVERGENCES.values()],
    ),
    "losses": (lambda: gvi.losses.Loss, lambda: [make() for make in catalogue.LOSSES.values()]),
    "covariances": (
        lambda: gvi.covariances.Covariance,
        lambda: [
            *(
                make(catalogue.kernels(1)["single"], [[0.0], [1.0]])
                for make in catalogue.COVARIANCES.values()
            ),
            conditioned(gpflow.kernels.SquaredExponential()),
            conditioned(gpflow.kernels.Linear()),
        ],
    ),
    "contexts": (
        lambda: gvi.contexts.Context,
        lambda: [make() for make in catalogue.CONTEXTS.values()],
    ),
}


@pytest.mark.parametrize("name", BUILT)
def test_every_class_is_among_the_cases(name):
    for module in MODULES:  # so that Python knows the subclasses of each
        importlib.import_module(module)
    base, build = BUILT[name]
    classes = concrete(base())
    assert len(classes) > 3
    missing = classes - {type(part) for part in build()}
    assert not missing, f"tests/catalogue.py lacks {missing}"


def test_every_projected_divergence_has_its_definition():
    assert catalogue.PROJECTED.keys() == references.PROJECTED.keys()
    projected = concrete(gvi.divergences.ProjectedDivergence)
    assert projected <= {type(make()) for make in catalogue.PROJECTED.values()}


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


def test_designs_have_every_value_and_every_pair():
    parameters = "abc", (1, 2), "xyzw"
    every = set(itertools.chain.from_iterable(designs.each_value(*parameters)))
    assert every == {*"abcxyzw", 1, 2}
    cases = designs.each_pair(*parameters)
    assert len(cases) < 3 * 2 * 4
    for one, other in itertools.combinations(range(3), 2):
        met = {(case[one], case[other]) for case in cases}
        assert met == set(itertools.product(parameters[one], parameters[other]))

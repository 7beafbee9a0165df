"""Sweeps: which runs a file describes, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from gpflow_gvi.__main__ import main
from gpflow_gvi.experiments.reading import ConfigError
from gpflow_gvi.experiments.run_folder import name_of
from gpflow_gvi.experiments.sweep import read_sweep, sample

THESIS = Path(__file__).parents[3] / "examples" / "thesis_sweep.yaml"


@pytest.fixture
def points(tmp_path):
    def read(**values):
        path = tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({"base": {"data": "yacht"}, **values}, sort_keys=False))
        return read_sweep(path)

    return read


def test_axes_are_crossed(points):
    found = points(
        axes={"split.index": [0, 1], "regulariser.inducing": {"root": {"power": 2}, "ten": 10}},
        variants={
            "method": {"a": {"divergence": "projected_kl"}, "b": {"mean": "network"}},
            "training": {
                "short": {"optimiser.learning_rate": 0.1, "training.epochs": 1},
                "long": {"optimiser.learning_rate": 0.01, "training.epochs": 10},
            },
        },
    )
    expected = set(itertools.product((0, 1), ("root", "ten"), "ab", ("short", "long")))
    names = ("split.index", "regulariser.inducing", "method", "training")
    assert {tuple(p.axes[name] for name in names) for p in found} == expected
    assert len(found) == len({name_of(p.experiment) for p in found}) == 16
    for axes, experiment in found:
        assert experiment.split.index == axes["split.index"]
        assert (experiment.regulariser.inducing == 10) == (axes["regulariser.inducing"] == "ten")
        assert (experiment.divergence.kind == "projected_kl") == (axes["method"] == "a")
        assert (experiment.mean.kind == "network") == (axes["method"] == "b")
        is_short = axes["training"] == "short"
        assert experiment.training.epochs == (1 if is_short else 10)
        assert experiment.optimiser.learning_rate == (0.1 if is_short else 0.01)


def test_excluded_combinations(points):
    found = points(
        axes={"split.index": [0, 1, 2], "covariance": ["cholesky", "diagonal"]},
        exclude=[{"split.index": [0, 2], "covariance": "diagonal"}, {"split.index": 1}],
    )
    assert [tuple(p.axes.values()) for p in found] == [(0, "cholesky"), (2, "cholesky")]


def test_paths_lead_through_names_and_lists(points):
    base = {
        "data": "yacht",
        "covariance": "kernelised",
        "mean": {"kind": "network", "layers": [{"kind": "dense"}, {"kind": "dense"}]},
    }
    axes = {"covariance.base_kernel": ["matern52"], "mean.layers.1.units": [7]}
    [(_, experiment)] = points(base=base, axes=axes)
    assert experiment.covariance.base_kernel.kind == "matern52"
    assert [layer.units for layer in experiment.mean.layers] == [50, 7]


def test_base_may_be_a_file_beside_it(points, tmp_path):
    (tmp_path / "base.yaml").write_text("data: energy\nseed: 3\n")
    found = points(base="base.yaml", axes={"seed": [3, 4]})
    assert [(p.experiment.data.kind, p.experiment.seed) for p in found] == [
        ("energy", 3),
        ("energy", 4),
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"axis": {}}, "axis is no key of this part.*Did you mean 'axes'"),
        ({"axes": {"seed": []}}, "axes"),
        ({"axes": {"sed": [1]}}, "where sed is 1.*sed is no key.*Did you mean 'seed'"),
        ({"axes": {"seed": [-1]}}, "where seed is -1.*seed is -1"),
        ({"axes": {"seed.x": [1]}, "base": {"data": "yacht", "seed": 1}}, "seed, which is 1"),
        ({"axes": {"seed": [1]}, "variants": {"seed": {"a": {}}}}, "'seed' is an axis twice"),
        ({"axes": {"seed": [1]}, "exclude": [{"sed": 1}]}, "exclude names 'sed'"),
        ({"axes": {"seed": [1]}, "exclude": [{"\ud800": 1}]}, r"exclude names '\\ud800'"),
        ({"axes": {"seed": [1]}, "exclude": [{"seed": 2}]}, r"exclude has seed: 2; .* are \[1\]"),
        ({"axes": {"seed": [1]}, "exclude": [{"seed": 1}]}, "leaves no run"),
        ({"axes": {"seed": [1, 2, 1]}}, "where seed is 1 and where seed is 1 all settings"),
        (
            {"axes": {"seed": [1, 2], "covariance": {"a": "diagonal", "b": {"kind": "diagonal"}}}},
            "where covariance is a and where covariance is b all settings are the same",
        ),
        (
            {"axes": {"loss": ["log_loss", "gamma_loss"]}, "variants": {"m": {"x": {}, "y": {}}}},
            "where m is x and where m is y all settings are the same",
        ),
        (
            {"axes": {"seed": [1, 2]}, "variants": {"m": {"a": {}, "b": {"seed": 1}}}},
            "where m is a and where m is b all settings are the same",
        ),
        ({"base": "x" * 5000}, r"sweep\.yaml: base: .{0,1000}x cannot be read .{0,100}$"),
        ({"axes": {"mean": ["x" * 5000]}}, "where mean is x{200}:1: .{0,300}$"),
        ({"base": "no.yaml"}, r"sweep\.yaml: base: .*no\.yaml cannot be read .*No such file"),
        (
            {"axes": {f"a{i}": list(range(50)) for i in range(9)}},
            "describes 1953125000000000 runs.*20000",
        ),
        (
            {"axes": {"mean.layers.5.units": [1]}, "base": {"data": "yacht", "mean": "network"}},
            "mean.layers",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(values, message, points):
    with pytest.raises(ConfigError, match=message):
        points(**values)


@pytest.mark.slow
def test_the_sweep_of_the_thesis_has_its_1260_settings_on_ten_curves(capsys):
    found = read_sweep(THESIS)
    assert len({name_of(p.experiment) for p in found}) == len(found) == 12600
    of_curve = {}
    for axes, _ in found:
        of_curve.setdefault(axes["data.number"], set()).add(tuple(axes.values())[1:])
    assert {len(settings) for settings in of_curve.values()} == {1260}
    assert main(["sweep", str(THESIS), "--dry-run", "--sample", "3"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 4
    assert told[-1] == "3 runs"


def test_sample():
    assert sample(range(100), 100) == list(range(100))
    some = sample(range(100), 10)
    assert some == sorted(set(some))
    assert len(some) == 10
    with pytest.raises(ConfigError, match="--sample is 101"):
        sample(range(100), 101)


def test_base_is_the_same_in_a_file_of_its_own(tmp_path):
    """Where an axis is the data, what the data of the base have as defaults is not for others."""
    base = {"data": "banana", "likelihood": "gaussian", "covariance": "diagonal"}
    data = ["banana", "yacht", {"kind": "curve", "number": 1}]
    axes = {"data": data, "covariance.kind": ["cholesky"]}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    path = tmp_path / "sweep.yaml"
    runs = []
    for each in (base, "base.yaml"):
        path.write_text(yaml.safe_dump({"base": each, "axes": axes}))
        runs.append(read_sweep(path))
    assert runs[0] == runs[1]
    assert [run.experiment.split.kind for run in runs[1]] == ["random", "given", "given"]


def test_files_of_the_other_command_are_told_apart(tmp_path, capsys):
    one, many = tmp_path / "one.yaml", tmp_path / "many.yaml"
    one.write_text("data: yacht\n")
    many.write_text("base: one.yaml\naxes: {split.index: [0, 1]}\n")
    assert main(["run", str(many), "--dry-run"]) == 2
    assert f"gpflow-gvi sweep {many}" in capsys.readouterr().err
    assert main(["sweep", str(one), "--dry-run"]) == 2
    assert f"gpflow-gvi run {one}" in capsys.readouterr().err

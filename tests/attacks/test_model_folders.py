"""Whatever is in a folder, `load` refuses it or builds parts of models, and does nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_gvi.saving import save

from . import model_folders

REFUSALS = ("ValueError", "TypeError", "FileNotFoundError")


def validate(name, outcome, text):
    if name in model_folders.SAME:
        assert outcome == "same", (name, text)
    elif name in model_folders.OTHER:
        assert outcome == "other", (name, text)
    else:
        assert outcome in REFUSALS, (name, outcome, text)
        assert not text.startswith("no folder in"), (name, text)
        assert any(
            f" {verb} " in text.lower() for verb in ("save", "give", "copy", "call", "load it")
        ), text


@pytest.mark.slow
def test_every_variant_in_a_process_that_is_watched(tmp_path):
    command = [sys.executable, "-m", "tests.attacks.model_folders", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results) >= 440
    assert not {name: found for name, (_, _, found) in results.items() if found}
    for name, (outcome, text, _) in results.items():
        validate(name, outcome, text)


QUICK = (
    *("names: object 0 os:system", "names: constructed 2 builtins:eval"),
    *("names: parameter 8 tensorflow:Module", "names: named 4 intruder:Intruder"),
    *("names: named 6 tensorflow.io:write_file", "names: named 7 tensorflow.nn:__builtins__"),
    *("names: record 9 gpflow_gvi.saving.model_folder:os.system", "nodes: attribute __call__"),
    *("names: object 4 intruder:Intruder", "nodes: kind eval", "files: network ../1.keras"),
    *("keras: intruder.Intruder", "keras: function builtins eval"),
    *(
        "nodes: deferred as variable",
        "nodes: exponential chains as transform",
        "json: deep",
    ),
    *("files: '../values.npz'", "files: a pipe", "values: pickled"),
    "files: the folder is a link to itself",
    *("keras: units", "keras: registered DistributionLambda", "keras: external"),
    *("keras: activation get", "keras: link outside", "keras: compressed", "keras: assets"),
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacks") / "saved"
    save(model_folders.thing(), folder)
    return folder


@pytest.mark.parametrize("name", QUICK)
def test_some_variants(name, saved, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "intruder.py").write_text("class Intruder: pass\n")
    outcome, text = model_folders.attack(saved, model_folders.variants()[name], tmp_path)
    validate(name, outcome, text)
    assert "may not be" in text or not name.startswith("names:")
    assert "intruder" not in sys.modules

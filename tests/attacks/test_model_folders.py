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
    assert len(results) >= 450
    assert not {name: found for name, (_, _, found) in results.items() if found}
    for name, (outcome, text, _) in results.items():
        validate(name, outcome, text)


QUICK = (
    *(
        "nodes: deferred as variable",
        "nodes: inline as transform",
        "nodes: autoregressive as prior",
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
def test_some_variants(name, saved, tmp_path):
    validate(name, *model_folders.attack(saved, model_folders.variants()[name], tmp_path))

"""A folder is complete or not there, and whoever reads a damaged one is told so."""

from __future__ import annotations

import json
import math
import shutil
import threading
from pathlib import Path

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.serialisation import load, save
from tests import networks


def test_what_is_in_the_folder(tmp_path):
    save({"kernel": gpflow.kernels.Matern12(), "net": networks.dense(keras)}, tmp_path / "saved")
    files = {path.relative_to(tmp_path / "saved").as_posix() for path in tmp_path.rglob("*.*")}
    assert files - {"."} == {"structure.json", "values.npz", "networks/1.keras"}
    with np.load(tmp_path / "saved" / "values.npz", allow_pickle=False) as values:
        assert all(isinstance(values[name], np.ndarray) for name in values)
        assert "dict['kernel'].lengthscales" in values
    structure = json.loads((tmp_path / "saved" / "structure.json").read_text("utf-8"))
    assert structure["format"] == 1
    assert structure["versions"]["gpflow"] == gpflow.__version__


def test_a_folder_in_use_is_not_overwritten(tmp_path):
    save("old", tmp_path / "saved")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save("new", tmp_path / "saved")
    assert load(tmp_path / "saved") == "old"
    save("new", tmp_path / "saved", overwrite=True)
    assert load(tmp_path / "saved") == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_a_saved_model_is_never_replaced(overwrite, tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("precious")
    for name in ("file", "folder"):
        with pytest.raises(FileExistsError, match="choose another"):
            save("new", tmp_path / name, overwrite=overwrite)
    assert (tmp_path / "file").read_text() == "precious"
    assert (tmp_path / "folder" / "file").read_text() == "precious"


def test_an_empty_folder_and_one_that_is_missing_are_used(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", str(tmp_path / "far" / "away")):
        save("new", path)
        assert load(path) == "new"


class Killed(BaseException):
    """Stands for kill -9: nothing after it is done."""


def test_killed_at_any_moment_the_old_or_the_new_is_there(tmp_path, monkeypatch):
    """Stop before each of the calls that change the disk, and clean nothing up."""
    folder = tmp_path / "saved"
    save("old", folder)
    monkeypatch.setattr("gpflow_gvi.serialisation.atomic.shutil.rmtree", real := Counted())
    for name in ("mkdir", "rename", "write_text", "open"):
        original = getattr(Path, name)
        monkeypatch.setattr(Path, name, real.stopping(original))
    found = set()
    for moment in range(1, 100):
        real.start(moment)
        try:
            save("new", folder, overwrite=True)
            finished = True
        except Killed:
            finished = False
        real.start(None)
        found.add(load(folder))
        if finished:
            break
        save("old", folder, overwrite=True)
        assert load(folder) == "old"
    assert finished
    assert moment > 5
    assert found == {"old", "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


class Counted:
    """Lets so many calls through and stops the next: of `shutil.rmtree` and of others."""

    def __init__(self):

        self.rmtree = shutil.rmtree
        self.start(None)

    def start(self, moment):
        self.left = math.inf if moment is None else moment
        self.dead = False

    def count(self):
        self.left -= 1
        self.dead = self.dead or self.left < 1
        if self.dead:
            raise Killed

    def __call__(self, path, **options):
        self.count()
        self.rmtree(path, **options)

    def stopping(self, original):
        def stopped(*args, **kwargs):
            self.count()
            return original(*args, **kwargs)

        return stopped


def test_an_error_in_the_middle_leaves_the_old(tmp_path):
    save("old", tmp_path / "saved")
    with pytest.raises(TypeError, match="lock"):
        save([np.ones(3), threading.Lock()], tmp_path / "saved", overwrite=True)
    assert load(tmp_path / "saved") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def damaged(change):
    def apply(folder):
        file = folder / "structure.json"
        structure = json.loads(file.read_text())
        change(structure)
        file.write_text(json.dumps(structure))

    return apply


DAMAGE = {
    "nothing there": (
        lambda folder: folder.rename(folder.with_name("elsewhere")),
        FileNotFoundError,
        "no saved model",
    ),
    "no structure": (
        lambda folder: (folder / "structure.json").unlink(),
        FileNotFoundError,
        "no structure.json",
    ),
    "no values": (
        lambda folder: (folder / "values.npz").unlink(),
        FileNotFoundError,
        "has lost values.npz",
    ),
    "half a structure": (
        lambda folder: (folder / "structure.json").write_text('{"format": 1, "root'),
        ValueError,
        "structure.json is damaged",
    ),
    "half of the values": (
        lambda folder: (folder / "values.npz").write_bytes(b"PK"),
        ValueError,
        r"values\.npz is not what was saved",
    ),
    "later format": (
        damaged(lambda structure: structure.update(format=99)),
        ValueError,
        "has format 99",
    ),
    "no kind": (
        damaged(lambda structure: structure["root"].pop("kind")),
        ValueError,
        "cannot be read.*kind",
    ),
    "no reference": (
        damaged(lambda structure: structure.update(root={"kind": "reference", "to": 5})),
        ValueError,
        "cannot be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_folders(name, tmp_path):
    damage, kind, message = DAMAGE[name]
    save(gpflow.kernels.Matern12(), tmp_path / "saved")
    damage(tmp_path / "saved")
    with pytest.raises(kind, match=message):
        load(tmp_path / "saved")


def test_values_of_another_save(tmp_path):
    for name, scale in (("one", 1.0), ("two", 2.0)):
        save(gpflow.kernels.Matern12(lengthscales=scale), tmp_path / name)
    (tmp_path / "two" / "values.npz").replace(tmp_path / "one" / "values.npz")
    with pytest.raises(ValueError, match=r"values\.npz is not what"):
        load(tmp_path / "one")


def test_float32(tmp_path):
    gpflow.config.set_default_float(np.float32)
    try:
        kernel = gpflow.kernels.Matern12(lengthscales=0.3)
        save(kernel, tmp_path / "saved")
        loaded = load(tmp_path / "saved")
        assert loaded.lengthscales.dtype == tf.float32
    finally:
        gpflow.config.set_default_float(np.float64)
    with pytest.raises(ValueError, match=r"saved in float32.*set_default_float\(np.float32\)"):
        load(tmp_path / "saved")


def test_another_jitter_is_told(tmp_path):
    save([1], tmp_path / "saved")
    with gpflow.config.as_context():
        gpflow.config.set_default_jitter(1e-5)
        with pytest.warns(NumericsWarning, match=r"set_default_jitter\(1e-06\)"):
            load(tmp_path / "saved")

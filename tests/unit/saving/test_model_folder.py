"""A folder is complete or not there, and whoever reads a damaged one is told so."""

from __future__ import annotations

import json
import math
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpflow
import keras
import numpy as np
import pytest
import tensorflow as tf

from gpflow_gvi._core import files
from gpflow_gvi.errors import NumericsWarning
from gpflow_gvi.saving import load, save
from gpflow_gvi.saving import model_folder as folder_module
from tests import networks


def test_what_is_in_the_folder(tmp_path):
    save({"kernel": gpflow.kernels.Matern12(), "net": networks.dense(keras)}, tmp_path / "saved")
    files = {path.relative_to(tmp_path / "saved").as_posix() for path in tmp_path.rglob("*.*")}
    assert files - {"."} == {"structure.json", "values.npz", "networks/1.keras"}
    with np.load(tmp_path / "saved" / "values.npz", allow_pickle=False) as values:
        assert all(isinstance(values[name], np.ndarray) for name in values)
        assert "dict['kernel'].lengthscales" in values
    structure = json.loads((tmp_path / "saved" / "structure.json").read_text("utf-8"))
    assert structure["format"] == 2
    assert structure["versions"]["gpflow"] == gpflow.__version__


def test_a_tilde_is_the_home_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save("mine", "~/saved")
    assert load(tmp_path / "saved") == load("~/saved") == "mine"


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
    monkeypatch.setattr("gpflow_gvi._core.files.shutil.rmtree", real := Counted())
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
    assert {path.suffix for path in tmp_path.iterdir()} == {"", ".partial"}


def test_files_of_the_user_beside_the_folder_are_left_alone(tmp_path):
    own = ["saved.partial", "saved.replaced", "saved.1.partial", "resaved.partial"]
    for name in own:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("precious")
    for thing in ("old", "new"):
        save(thing, tmp_path / "saved", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["saved", *own])
    assert all((tmp_path / name / "file").read_text() == "precious" for name in own)


def test_what_another_process_is_writing_is_left_alone(tmp_path):
    with files.new_folder(tmp_path / "saved", "structure.json") as partial:
        (partial / "structure.json").write_text("{}")
        save("quicker", tmp_path / "saved")
        assert partial.exists()
        with pytest.raises(FileExistsError, match="overwrite=True"):
            save("later", tmp_path / "saved")
        shutil.rmtree(tmp_path / "saved")
    assert (tmp_path / "saved" / "structure.json").read_text() == "{}"


def test_of_two_that_save_to_a_new_folder_the_second_is_refused(tmp_path):
    with (
        pytest.raises(FileExistsError, match="overwrite=True"),
        files.new_folder(tmp_path / "saved", "structure.json"),
    ):
        save("quicker", tmp_path / "saved")
    assert load(tmp_path / "saved") == "quicker"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_many_save_and_load_at_once_and_each_load_is_of_one_save(tmp_path):
    """Each save consists of two equal arrays and a text; a mixture of two would show."""
    folder = tmp_path / "saved"

    def version(i):
        return {"a": np.full(1000, i), "b": np.full(1000, i), "c": str(i)}

    read_once, all_written = threading.Event(), threading.Event()

    def write(i):
        read_once.wait()
        for _ in range(10):
            save(version(i), folder, overwrite=True)

    def read(_):
        things = [load(folder)]
        read_once.set()
        while not all_written.is_set():
            things.append(load(folder))
        return [*things, load(folder)]

    save(version(0), folder)
    with ThreadPoolExecutor(5) as pool:
        readers = pool.map(read, range(2))
        try:
            assert list(pool.map(write, range(1, 4))) == [None] * 3
        finally:
            all_written.set()
        loaded = [thing for things in readers for thing in things]
    for thing in loaded:
        assert set(thing["a"]) == set(thing["b"]) == {int(thing["c"])}
    assert len({thing["c"] for thing in loaded}) > 1
    assert load(folder)["c"] in "123"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_folder_that_is_replaced_during_a_load_is_read_anew(tmp_path, monkeypatch):
    def version(i):
        return {"net": networks.dense(keras, F=i), "array": np.full(3, i), "number": i}

    save(version(1), tmp_path / "saved")
    digest = folder_module._digest

    def replacing(content):  # when one of two files has been read
        monkeypatch.setattr(folder_module, "_digest", digest)
        save(version(2), tmp_path / "saved", overwrite=True)
        return digest(content)

    monkeypatch.setattr(folder_module, "_digest", replacing)
    loaded = load(tmp_path / "saved")
    assert loaded["number"] == 2
    np.testing.assert_array_equal(loaded["array"], 2)
    assert loaded["net"].output_shape == (None, 2)


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


def test_without_locks_and_through_a_symbolic_link(tmp_path, monkeypatch):
    """As on Windows, and where the folder above is not readable."""
    save("old", tmp_path / "real" / "saved")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "saved")
    monkeypatch.setattr(files, "fcntl", None)
    save("new", tmp_path / "link", overwrite=True)
    monkeypatch.undo()
    monkeypatch.setattr("gpflow_gvi._core.files.fcntl.flock", refuse_lock)
    assert load(tmp_path / "real" / "saved") == "new"
    save("newer", tmp_path / "link", overwrite=True)
    assert load(tmp_path / "link") == "newer"
    assert (tmp_path / "link").is_symlink()
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["saved"]


def refuse_lock(*_):
    raise OSError("no locks")


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
        lambda folder: (folder / "structure.json").write_text('{"format": 2, "root'),
        ValueError,
        "structure.json is damaged",
    ),
    "half of the values": (
        lambda folder: (folder / "values.npz").write_bytes(b"PK"),
        ValueError,
        r"values\.npz is not what was saved",
    ),
    "earlier format": (
        damaged(lambda structure: structure.update(format=1)),
        ValueError,
        r"has format 1, but 2 is read here\. Load it with the versions that wrote it",
    ),
    "later format": (
        damaged(lambda structure: structure.update(format=99)),
        ValueError,
        "has format 99",
    ),
    "no class": (
        damaged(lambda structure: structure["root"].pop("class")),
        ValueError,
        "cannot be read.*class",
    ),
    "no reference": (
        damaged(lambda structure: structure.update(root={"same": 5})),
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
    with gpflow.config.as_context(gpflow.config.Config(float=np.float32)):
        kernel = gpflow.kernels.Matern12(lengthscales=0.3)
        save(kernel, tmp_path / "saved")
        loaded = load(tmp_path / "saved")
        assert loaded.lengthscales.dtype == tf.float32
    with pytest.raises(ValueError, match=r"saved in float32.*set_default_float\(np.float32\)"):
        load(tmp_path / "saved")


def test_another_jitter_is_reported(tmp_path):
    save([1], tmp_path / "saved")
    with gpflow.config.as_context():
        gpflow.config.set_default_jitter(1e-5)
        with pytest.warns(NumericsWarning, match=r"set_default_jitter\(1e-06\)"):
            load(tmp_path / "saved")


@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_a_file_of_keras_would_not_have_the_process(name, tmp_path):
    with pytest.raises(ValueError, match="has no place for a Gaussian process"):
        save("new", tmp_path / name)
    assert list(tmp_path.iterdir()) == []

from __future__ import annotations

import errno
import os

import pytest

from gpflow_gvi._core import files


def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "weights.h5"
    path.write_bytes(b"old")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with (
            pytest.raises(OSError, match="No space left"),
            files.new_file(path) as f,
        ):
            f.write(b"new")
        with (
            pytest.raises(OSError, match="No space left"),
            files.new_folder(tmp_path / "model", "mark") as folder,
        ):
            (folder / "mark").write_bytes(b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["weights.h5"]
    assert path.read_bytes() == b"old"


def test_a_folder_left_aside_is_what_there_is_until_the_next_one(tmp_path):
    """As of a process that was killed between its two renamings."""
    folder, aside = tmp_path / "model", tmp_path / f"model.{'0' * 32}.replaced"
    other = tmp_path / f"other.{'0' * 32}.replaced"
    for each in (aside, other):
        each.mkdir()
        (each / "mark").touch()
    assert files.present(folder) == aside
    with pytest.raises(FileExistsError, match="overwrite=True"), files.new_folder(folder, "mark"):
        pass
    with files.new_folder(folder, "mark", overwrite=True) as partial:
        (partial / "mark").touch()
    assert sorted(tmp_path.iterdir()) == [folder, other]

from __future__ import annotations

import multiprocessing

import pytest

from gpflow_gvi.experiments.run_folder import COMPLETE, FolderInUseError, Results, RunFolder


def finish(folder, text, *, anew=False):
    work = folder.begin(anew=anew)
    (work / "result").write_text(text)
    (work / COMPLETE).write_text("{}")


def test_a_run_appears_when_it_is_complete_and_leaves_nothing_beside(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "one")
    with folder.locked():
        finish(folder, "first")
        assert not folder.path.exists()
        folder.publish()
    assert folder.is_complete
    assert [path.name for path in folder.path.parent.iterdir()] == ["one"]


def test_an_old_run_stays_until_the_new_one_is_complete(tmp_path):
    folder = RunFolder(tmp_path / "one")
    for text in ("old", "new"):
        with folder.locked():
            finish(folder, text, anew=True)
            folder.publish()
    assert (folder.path / "result").read_text() == "new"
    with folder.locked():  # killed before anything was complete
        (folder.begin(anew=True) / "half").touch()
    with folder.locked():
        assert (folder.path / "result").read_text() == "new"
        assert (folder.begin(anew=False) / "half").exists()
        assert not (folder.begin(anew=True) / "half").exists()


@pytest.mark.parametrize("moment", ["before", "between"])
def test_killed_while_it_was_published(moment, tmp_path):
    folder = RunFolder(tmp_path / "one")
    with folder.locked():
        finish(folder, "old")
        folder.publish()
        finish(folder, "new")
    if moment == "between":  # the old one is half removed
        (folder.path / COMPLETE).unlink()
    with folder.locked():
        assert folder.is_complete
    assert (folder.path / "result").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_folder_that_is_no_run_is_named_and_left_alone(tmp_path):
    folder = RunFolder(tmp_path / "one")
    folder.path.mkdir()
    (folder.path / "thesis.tex").touch()
    with pytest.raises(FileExistsError, match=r"one is no finished run"), folder.locked():
        pass
    assert (folder.path / "thesis.tex").exists()


def test_a_finished_run_of_other_data_is_not_taken_for_this_one(tmp_path):
    folder = RunFolder(tmp_path / "one")
    assert not folder.is_of("a")
    with folder.locked():
        (folder.begin(anew=True) / COMPLETE).write_text('{"data": "a"}')
        folder.publish()
    assert folder.is_of("a")
    assert folder.is_of("")  # the file is not here
    with pytest.raises(ValueError, match=r"one is a finished run .* with other data: .* --force"):
        folder.is_of("b")


def hold(path, ready, done):
    with RunFolder(path).locked():
        ready.set()
        done.wait(20.0)


def test_two_processes_do_not_work_on_the_same_run(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path / "one", ready, done))
    other.start()
    assert ready.wait(20.0)
    folder = RunFolder(tmp_path / "one")
    try:
        with (
            pytest.raises(FolderInUseError, match=r"one\.lock is held by another"),
            folder.locked(),
        ):
            pass
    finally:
        other.kill()  # which gives the lock back
        other.join()
    with folder.locked():
        pass


@pytest.mark.parametrize("torn", ["", '{"name": "torn'])
def test_a_result_is_added_after_a_line_that_was_torn(torn, tmp_path):
    results = Results(tmp_path)
    results.path.write_text(torn, encoding="utf-8")
    record = {"name": "whole", "status": "done"}
    results.add(record)
    found, wrong = results.read()
    assert found == {"whole": record}
    assert len(wrong) == (1 if torn else 0)

"""Workers are started together, receive the addresses of each other, and restart together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpflow_gvi.integrations.distributed import launch

PROGRAM = """
import json, os, pathlib, signal, sys, time

folder, behaviour = pathlib.Path(sys.argv[1]), sys.argv[2]
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
attempt = len(list(folder.glob(f"{index}.*")))
(folder / f"{index}.{attempt}").write_text(json.dumps(config))
if behaviour == "die" and attempt < 2:
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # as one that waits for a dead worker
sys.exit(3 if behaviour == "fail" else 0)
"""


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    (tmp_path / "out").mkdir()
    return [str(script), str(tmp_path / "out")]


def written(program: list[str]) -> dict[str, dict]:
    return {path.name: json.loads(path.read_text()) for path in Path(program[1]).iterdir()}


def test_each_worker_knows_all_and_which_it_is(program: list[str]) -> None:
    assert launch([*program, "done"], workers=3) == 0
    configs = written(program)
    assert sorted(configs) == ["0.0", "1.0", "2.0"]
    addresses = configs["0.0"]["cluster"]["worker"]
    assert len(set(addresses)) == 3
    for name, config in configs.items():
        assert config["cluster"]["worker"] == addresses
        assert config["task"] == {"type": "worker", "index": int(name[0])}


def test_all_are_started_again_when_one_is_killed(program: list[str]) -> None:
    assert launch([*program, "die"], workers=2, restarts=2) == 0
    assert "1.2" in written(program)


def test_a_failure_is_tried_again_and_then_reported(program: list[str]) -> None:
    assert launch([*program, "fail"], workers=1, restarts=1) == 3
    assert sorted(written(program)) == ["0.0", "0.1"]
    assert launch([*program, "die"], workers=2, restarts=0) == 1


def test_the_worker_of_one_machine(program: list[str]) -> None:
    hosts = "a:1,b:2"
    command = [sys.executable, "-m", "gpflow_gvi", "launch", "--cluster", hosts, "--index", "1"]
    subprocess.run([*command, *program, "done"], check=True)
    assert written(program) == {
        "1.0": {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    }


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"restarts": -1}, "restarts is -1"),
        ({"cluster": ["a:1"], "index": 1}, "index is 1"),
        ({"index": 1}, "index is 1, a place in a cluster"),
        ({"cluster": ["a:1"], "workers": 2}, "workers is 2, but cluster names 1"),
        ({"command": []}, "command is empty"),
    ],
)
def test_arguments_are_validated(options: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        launch(**{"command": ["x.py"], **options})

"""What a computation tells, and who hears it."""

from __future__ import annotations

import io

from gpflow_gvi._core import progress


def compute():
    progress.now("first")
    progress.found(nll=0.25, M=3)
    progress.now("second")
    progress.done_of(1, 2)
    return "done"


def test_a_listener_keeps_the_stages_with_what_was_found():
    listener = progress.Listener()
    with progress.heard_by(listener):
        assert compute() == "done"
    assert [(stage.what, stage.facts) for stage in listener.stages] == [
        ("first", {"nll": 0.25, "M": 3}),
        ("second", {}),
    ]
    assert all(stage.seconds >= 0.0 for stage in listener.stages)


def test_nobody_listens_after_the_block_or_without_one():
    listener = progress.Listener()
    with progress.heard_by(listener):
        pass
    compute()
    assert listener.stages == []


def test_each_stage_is_a_line_where_no_terminal_is():
    stream = io.StringIO()
    with progress.spoken(1, stream):
        compute()
    first, second = stream.getvalue().splitlines()
    assert first.startswith("first ... nll 0.25, M 3, ")
    assert second.startswith("second ... ")
    assert first.endswith(" s")
    assert "\r" not in stream.getvalue()


def test_a_terminal_gets_a_bar():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with progress.spoken(1, stream):
        compute()
    assert "second [##########..........] 1/2" in stream.getvalue()


def test_nothing_is_written_if_not_verbose():
    stream = io.StringIO()
    with progress.spoken(0, stream):
        compute()
    assert stream.getvalue() == ""


def test_both_of_two_listeners_hear_a_stage_inside():
    outer, inner = progress.Listener(), progress.Listener()
    with progress.heard_by(outer):
        progress.now("before")
        with progress.heard_by(inner):
            progress.now("inside")
        progress.now("after")
    assert [stage.what for stage in inner.stages] == ["inside"]
    assert [stage.what for stage in outer.stages] == ["before", "inside", "after"]

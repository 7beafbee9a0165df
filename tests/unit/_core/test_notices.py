"""When notices are logged, and when they are collected."""

from __future__ import annotations

import contextlib
import logging

import pytest
import tensorflow as tf

from gpflow_gvi._core.notices import Notice, collected, logger, notice


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.name == logger.name for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def _level(caplog):
    caplog.set_level(logging.WARNING, logger="gpflow_gvi")


@pytest.mark.parametrize(
    ("amount", "is_due"), [(3.0, True), (0.0, False), (-1.0, False), (2, True)], ids=str
)
def test_notices_are_logged_at_once_in_eager_mode(caplog, amount, is_due):
    notice("{} things", tf.constant(amount))
    assert messages(caplog) == ([f"{amount:.3g} things"] if is_due else [])


def test_a_block_collects_its_notices_and_an_inner_block_its_own(caplog):
    with collected() as outer:
        notice("first, {}", tf.constant(1.0))
        with contextlib.suppress(ZeroDivisionError), collected() as inner:
            notice("inner, {}", tf.constant(2.0))
            raise ZeroDivisionError
        notice("last, {}", tf.constant(-3.0), urgent=True)
    assert messages(caplog) == []
    assert [(note.message, note.urgent) for note in outer] == [
        ("first, {}", False),
        ("last, {}", True),
    ]
    for note in (*outer, *inner):
        note.log()
    notice("after, {}", tf.constant(4.0))
    assert messages(caplog) == ["first, 1", "inner, 2", "after, 4"]


def test_notices_of_a_graph_are_logged_by_those_who_collected_them(caplog):
    found: list[str] = []

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        notice("dropped: nobody collects it, {}", x)
        with collected() as notices:
            notice("{} is positive", x)
            notice("{} is its negative", -x)
        found[:] = [note.message for note in notices]
        return [note.amount for note in notices]

    amounts = step(tf.constant(2.5))
    assert messages(caplog) == []
    for pair in zip(found, amounts, strict=True):
        Notice(*pair).log()
    assert messages(caplog) == ["2.5 is positive"]

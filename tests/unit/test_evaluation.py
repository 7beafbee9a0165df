"""What an evaluation computes once, what it is given, and when it tells what it noticed."""

from __future__ import annotations

import contextlib
import logging

import pytest
import tensorflow as tf

from gpflow_gvi import evaluation
from gpflow_gvi.evaluation import Evaluation, Notice, notice, once, prepare, tell


class Counted:
    """A marked function that records the arguments of the calls that got through to it."""

    def __init__(self) -> None:
        self.calls: list[tuple[tf.Tensor, ...]] = []

        @once
        def double_sum(*terms: tf.Tensor) -> tf.Tensor:
            self.calls.append(terms)
            return 2.0 * tf.add_n(list(terms))

        self.double_sum = double_sum


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_once_within_an_evaluation_and_each_time_outside(counted):
    x, equal = tf.constant(3.0), tf.constant(3.0)
    for _ in range(2):
        assert counted.double_sum(x) == 6.0
    assert len(counted.calls) == 2

    for calls in (5, 8):  # each evaluation starts anew
        with Evaluation():
            first = counted.double_sum(x)
            assert counted.double_sum(x) is first
            assert counted.double_sum(equal) == first  # equal is not the same: computed
            assert counted.double_sum(x, equal) == 12.0
            assert counted.double_sum(x) is first
        assert len(counted.calls) == calls

    counted.double_sum(x)
    assert len(counted.calls) == 9


def test_arguments_that_only_live_within_the_call_are_not_confused():
    """The address of an object that died is often that of the next one."""
    total = once(lambda numbers: sum(numbers))
    with Evaluation():
        values = [total([i, i]) for i in range(50)]
    assert values == [2 * i for i in range(50)]


def test_keyword_arguments_count_as_arguments():
    scaled = once(lambda x, scale=1.0: scale * x)
    x = 2.0
    with Evaluation():
        assert [scaled(x), scaled(x, scale=5.0)] == [2.0, 10.0]


def test_functions_do_not_share_values(counted):
    x, other = tf.constant(1.0), Counted()
    with Evaluation():
        counted.double_sum(x)
        other.double_sum(x)
    assert len(counted.calls) == len(other.calls) == 1


def test_an_error_ends_the_evaluation_and_an_inner_one_ends_before_the_outer(counted):
    x = tf.constant(1.0)
    with Evaluation():
        first = counted.double_sum(x)
        with contextlib.suppress(ZeroDivisionError), Evaluation():
            assert counted.double_sum(x) is not first
            raise ZeroDivisionError
        assert counted.double_sum(x) is first
    counted.double_sum(x)
    assert len(counted.calls) == 3


@pytest.mark.parametrize("outer_first", [True, False], ids=["outer first", "body first"])
def test_inner_graphs_have_values_of_their_own(counted, outer_first):
    """A tensor of the body of a loop cannot be used outside of it: tracing would fail."""

    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        with Evaluation():
            start = counted.double_sum(x) if outer_first else tf.zeros([])
            # Twice in the body, where the second is recalled.
            _, total = tf.while_loop(
                lambda i, total: i < 3,
                lambda i, total: (i + 1, total + counted.double_sum(x) + counted.double_sum(x)),
                (0, start),
            )
            return total + counted.double_sum(x)

    # x = 1.5 doubled is 3: three times two of them, one at the end, and perhaps one at the start.
    assert run(tf.constant(1.5)) == (24.0 if outer_first else 21.0)
    assert len(counted.calls) == 2


def test_given_values_are_used_in_any_graph(counted):
    x, known = tf.constant(3.0), tf.constant(-1.0)
    with Evaluation() as earlier:
        counted.double_sum(x)
    ((_, key),) = earlier.memo

    @tf.function
    def run() -> tuple[tf.Tensor, tf.Tensor]:
        return counted.double_sum(x), counted.double_sum(2.0 * x)

    with Evaluation(given={key: known}):
        assert counted.double_sum(x) is known
        from_graph = run()
    assert [float(value) for value in from_graph] == [-1.0, 12.0]
    assert len(counted.calls) == 2  # the first, and that of 2x, which was not given


def test_prepare_reaches_a_module_and_its_parts():
    class Part(tf.Module):
        def __init__(self, *parts: tf.Module) -> None:
            super().__init__()
            self.parts, self.prepared = parts, 0

        def prepare(self) -> None:
            self.prepared += 1

    leaf = Part()
    root = Part(tf.Module(), leaf)
    prepare(root)
    assert (root.prepared, leaf.prepared) == (1, 1)


@pytest.mark.parametrize(
    ("amount", "told"), [(3.0, True), (0.0, False), (-1.0, False), (2, True)], ids=str
)
def test_notices_are_told_at_once_in_eager_mode(caplog, amount, told):
    with caplog.at_level(logging.WARNING, logger="gpflow_gvi"), Evaluation() as current:
        notice("{} things", tf.constant(amount))
    assert [record.getMessage() for record in caplog.records] == (
        [f"{amount:.3g} things"] if told else []
    )
    assert current.notices == []


def test_notices_of_a_graph_are_left_with_the_evaluation(caplog):
    collected: list[str] = []

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        notice("lost: no evaluation is there to keep it, {}", x)
        with Evaluation() as current:
            notice("{} is positive", x)
            notice("{} is its negative", -x)
        collected[:] = [note.message for note in current.notices]
        return [note.amount for note in current.notices]

    with caplog.at_level(logging.WARNING, logger="gpflow_gvi"):
        amounts = step(tf.constant(2.5))
        assert caplog.records == []
        told = [tell(Notice(*pair)) for pair in zip(collected, amounts, strict=True)]
    assert told == [True, False]
    assert [record.getMessage() for record in caplog.records] == ["2.5 is positive"]
    assert all(record.name == evaluation.logger.name for record in caplog.records)

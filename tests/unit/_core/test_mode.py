"""Training or inference, of a module or of all but the frozen ones."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from gpflow_gvi._core.mode import frozen, inference, is_training, training


class Parent(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = tf.Module()


def test_training_lasts_for_the_block_and_an_inner_block_may_differ():
    assert not is_training()
    with contextlib.suppress(ZeroDivisionError), training():
        assert is_training()
        with inference():
            assert not is_training()
            with training():
                assert is_training()
        with training(False):
            assert not is_training()
        assert is_training()
        raise ZeroDivisionError
    assert not is_training()


def test_frozen_modules_and_their_parts_are_not_in_training():
    first, second, other = Parent(), Parent(), Parent()
    with training(), frozen(first):
        with frozen(second):
            modes = [is_training(part) for part in (first, first.child, second, other, other.child)]
        assert modes == [False, False, False, True, True]
        assert is_training(second)
        assert is_training()
        assert not is_training(first.child)
    with training():
        assert is_training(first)


def test_nothing_is_in_training_where_a_block_of_inference_freezes_modules():
    first, other = Parent(), Parent()
    with frozen(first):
        assert not any(map(is_training, (first, other)))

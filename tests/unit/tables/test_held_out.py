"""The rows of a table that are held out to score with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from gpflow_gvi.tables.learn import _split
from gpflow_gvi.tables.prepare import prepare

N = 60


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=N), "kind": rng.choice(list("abc"), N)})
    return table.assign(y=rng.normal(size=N), label=rng.choice(["p", "n"], N))


def _parts(table, target, folder, **options):
    """The table and its rows in two parts."""
    table.to_csv(folder / "data.csv", index=False)
    prepared = prepare(folder / "data.csv", target, **options)
    return prepared, _split(prepared, prepared.columns.typed(prepared.table), 0)


@pytest.mark.parametrize(("target", "other"), [("y", "label"), ("label", "y")])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_rows_of_equal_inputs_are_held_out_together(target, other, times, table, tmp_path):
    table = pd.concat([table.drop(columns=other)] * times).sample(frac=1.0, random_state=1)
    prepared, (fitting, unseen) = _parts(table, target, tmp_path)
    assert sorted([*fitting, *unseen]) == list(range(times * N))
    assert len(unseen) == times * N / 5
    sizes = prepared.table["size"].to_numpy()
    assert not set(sizes[fitting]) & set(sizes[unseen])
    if target == "label":
        shares = [np.mean(prepared.y[rows] == "p") for rows in (fitting, unseen)]
        assert abs(shares[0] - shares[1]) < 0.1


def test_rows_without_repeats_are_parted_by_scikit_learn(table, tmp_path):
    _, parts = _parts(table, "label", tmp_path)
    expected = train_test_split(
        np.arange(N), test_size=12, random_state=0, stratify=table["label"].to_numpy()
    )
    for part, rows in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(part, rows)


def test_rows_of_levels_that_repeat_are_held_out_alone(table, tmp_path):
    """A new row has one of a few combinations of levels, and the model has seen it."""
    prepared, (fitting, unseen) = _parts(table[["kind", "y"]], "y", tmp_path)
    kinds = prepared.table["kind"].to_numpy()
    assert len(unseen) == 12
    assert set(kinds[unseen]) <= set(kinds[fitting])


def test_a_group_of_more_rows_than_are_held_out_is_learned_from(table, tmp_path):
    table = table.drop(columns="label")
    table.loc[:19, ["size", "kind"]] = [0.5, "a"]
    prepared, (_, unseen) = _parts(table, "y", tmp_path)
    assert 0.5 not in prepared.table["size"].to_numpy()[unseen]
    assert len(unseen) == 12


def test_all_rows_are_learned_from_if_none_are_held_out(table, tmp_path):
    _, (fitting, unseen) = _parts(table, "y", tmp_path, held_out=0.0)
    assert list(fitting) == list(range(N))
    assert len(unseen) == 0


@pytest.mark.parametrize("sizes", [(40, 15, 5), (45, 15), (30, 10, 9, 11), (1,) * N])
def test_the_last_dates_that_are_about_a_fifth_are_held_out(sizes, table, tmp_path):
    day = pd.to_datetime("2020-01-01") + pd.to_timedelta(np.repeat(range(len(sizes)), sizes), "D")
    prepared, (_, unseen) = _parts(
        table.assign(day=day).sample(frac=1.0, random_state=0), "y", tmp_path
    )
    after = np.cumsum(sizes[::-1])[:-1]  # the rows on and after each day but the first
    assert len(unseen) == min(after, key=lambda count: abs(count - N / 5))
    days = pd.to_datetime(prepared.table["day"])
    assert days.iloc[unseen].min() > days.drop(days.index[unseen]).max()


def test_rows_of_about_one_date_are_held_out_at_random(table, tmp_path):
    """As where a date says when the file was written."""
    day = np.where(np.arange(N) < 3, "2020-01-01", "2020-01-02")
    prepared, (fitting, unseen) = _parts(table.assign(day=day), "y", tmp_path)
    assert prepared.by_time is None
    assert (len(fitting), len(unseen)) == (48, 12)
    _, (fitting, unseen) = _parts(table.assign(day=day), "y", tmp_path, split="time")
    assert list(fitting) == [0, 1, 2]

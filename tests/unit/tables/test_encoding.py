"""Inputs of typed columns, compared with those of scikit-learn's transformers."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from gpflow_gvi.tables.columns import MAX_CATEGORIES, Columns
from gpflow_gvi.tables.encoding import Encoder
from tests.tolerances import assert_close


def _rows(seed: int, num_rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    towns = [f"town {k}" for k in range(30)]
    return pd.DataFrame(
        {
            "size": np.where(rng.random(num_rows) < 0.2, np.nan, rng.normal(size=num_rows)),
            "count": rng.integers(0, 9, num_rows),
            "sex": rng.choice(["m", "f"], num_rows),
            "kind": rng.choice(["a", "b", "c"], num_rows),
            "town": rng.choice(towns, num_rows, p=np.arange(1, 31) / 465),
            "maybe": rng.choice(["yes", None], num_rows),
        }
    )


@pytest.fixture(scope="module")
def columns():
    return Columns.of(_rows(0, 300))


def _by_scikit_learn(columns: Columns) -> ColumnTransformer:
    indicators = OneHotEncoder(
        max_categories=MAX_CATEGORIES,
        handle_unknown="infrequent_if_exist",
        drop="if_binary",
        sparse_output=False,
    )
    numbers = SimpleImputer(strategy="median", add_indicator=True)
    parts: list = [("numbers", numbers, columns.numbers)]
    for name in columns.categories:
        parts.append((name, indicators, [name]))
        if name == "town":  # it has thirty categories, which have numbers, too
            ordinal = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=31)
            parts.append(("number", ordinal, [name]))
    return ColumnTransformer(parts)


@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_inputs_are_those_of_scikit_learn(columns):
    assert columns.categories[:3] == ["sex", "kind", "town"]
    typed, new = (columns.typed(_rows(seed, 300)) for seed in (0, 1))
    new.loc[:5, ["kind", "town"]] = "never seen"
    encoder, theirs = Encoder.of(typed, columns), _by_scikit_learn(columns).fit(typed)
    assert typed["town"].nunique() == 30
    for rows in (typed, new):
        assert_close(encoder.transform(rows), theirs.transform(rows))
    assert encoder.transform(new).shape[1] == len(list(encoder.names()))


def test_each_input_belongs_to_its_column(columns):
    typed = columns.typed(_rows(0, 300))
    encoder = Encoder.of(typed, columns)
    groups, before = encoder.groups(columns), encoder.transform(typed)
    for name, of_column in groups.items():
        changed = typed.copy()
        changed[name] = np.roll(typed[name].to_numpy(), 1)
        differs = np.any(encoder.transform(changed) != before, axis=0)
        assert set(np.flatnonzero(differs)) <= set(of_column)
        assert differs.any()
    assert sorted(np.concatenate(list(groups.values()))) == list(range(before.shape[1]))


def test_a_column_that_is_empty_in_these_rows_is_zero(columns):
    typed = columns.typed(_rows(0, 50)).assign(size=np.nan)
    X = Encoder.of(typed, columns).transform(typed)
    assert np.all(np.isfinite(X))
    assert np.all(X[:, columns.numbers.index("size")] == 0.0)


def test_rows_are_outside_in_the_columns_whose_values_are_new():
    table = pd.DataFrame({"size": [1.0, 2.0, 3.0], "gaps": [1.0, np.nan, 2.0], "kind": list("aab")})
    columns = Columns.of(table)
    encoder = Encoder.of(columns.typed(table), columns)
    assert list(encoder.outside(columns.typed(table), columns)) == ["", "", ""]
    new = pd.DataFrame(
        {
            "size": [1.0, 0.9, 3.1, np.nan, 9.0],
            "gaps": [np.nan, 2.0, 1.0, 1.0, -1.0],
            "kind": ["a", "b", "b", None, "c"],
        }
    )
    expected = ["", "size", "size", "size; kind", "size; gaps; kind"]
    assert list(encoder.outside(columns.typed(new), columns)) == expected


def test_a_date_is_outside_by_the_name_of_its_column():
    days = pd.Series(pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d"))
    columns = Columns.of(pd.DataFrame({"day": days}))
    assert len(columns.encoded_numbers) == 3
    encoder = Encoder.of(columns.typed(pd.DataFrame({"day": days})), columns)
    new = pd.DataFrame({"day": [days[30], None, "2019-12-31", "2030-06-01"]})
    assert list(encoder.outside(columns.typed(new), columns)) == ["", "day", "day", "day"]


def test_a_table_to_predict_is_a_frame_with_each_column_once():
    table = pd.DataFrame({"size": [1.0, 2.0, 3.0], "kind": list("aab")})
    columns = Columns.of(table)
    with pytest.raises(TypeError, match="table is a dict; it must be a DataFrame of pandas"):
        columns.typed(table.to_dict("list"))
    with pytest.raises(ValueError, match=r"two columns 'kind'\. Leave out or rename one"):
        columns.typed(pd.concat([table, table[["kind"]]], axis=1))
    notes = table.set_axis(["note", "note"], axis=1)  # which are not used
    typed = columns.typed(pd.concat([table, notes], axis=1))
    pd.testing.assert_frame_equal(typed, columns.typed(table))

"""From a file to a model of its table, and to predictions beside its columns."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.multiclass import type_of_target

import gpflow_gvi as gvi
from gpflow_gvi.__main__ import main
from gpflow_gvi.tables import TableModel, learn_table, predict_file
from gpflow_gvi.tables.columns import Columns
from gpflow_gvi.tables.encoding import Encoder
from gpflow_gvi.tables.prepare import prepare, target_of
from gpflow_gvi.tables.table_files import TextFormat
from tests.tolerances import ROUNDING, assert_close, assert_estimates

N = 60


def _table():
    """A table with a category and missing inputs; the mean of y is known."""
    rng = np.random.default_rng(0)
    size, colour = rng.uniform(1.0, 5.0, N), rng.choice(["red", "blue", "grey"], N)
    y = 10.0 * size + np.where(colour == "red", 50.0, 0.0) + rng.normal(size=N)
    table = pd.DataFrame({"size": size, "colour": colour, "old": rng.random(N) < 0.5, "y": y})
    table["id"] = [f"row {i}" for i in range(N)]
    table.loc[[3, 7], "size"] = np.nan
    table.loc[[5, 9], "colour"] = None
    table.loc[11, "y"] = np.nan
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def written(folder):
    """What the command writes and says."""
    _table().to_csv(folder / "data.csv", index=False)
    command = ["learn", str(folder / "data.csv"), "--target", "y", "--effort", "fast"]
    assert main([*command, "--output", str(folder / "model")]) == 0
    return folder / "model"


def test_the_model_knows_its_columns(written):
    model = gvi.load(written)
    assert isinstance(model, TableModel)
    assert model.columns.numbers == ["size", "old"]
    assert model.columns.categories == ["colour"]
    assert list(model.columns.left_out) == ["id"]
    assert model.written == TextFormat(",", "utf-8", ("size", "old", "colour"), ".")
    new = pd.DataFrame({"size": [2.0, 2.0, 2.0], "colour": ["red", "grey", None], "old": [1, 0, 1]})
    predicted = model.predict(new)
    assert list(predicted) == ["y_mean", "y_sd", "y_lower", "y_upper", "y_outside"]
    assert_estimates(predicted["y_mean"][:2], [70.0, 20.0], predicted["y_sd"][:2])
    assert np.all(predicted["y_sd"][:2] < 5.0)  # and not by being unsure: colours are 50 apart
    y = model.learned_.predict_y_samples(model.inputs(new), 20_000, seed=0)[..., 0]  # [S, N]
    for beyond in (y < predicted["y_lower"].to_numpy(), y > predicted["y_upper"].to_numpy()):
        assert np.all(np.abs(np.mean(beyond, axis=0) - 0.025) < 0.005)  # 4.5 standard errors


def test_what_was_learned_knows_its_inputs(written):
    """Or else it would take a frame of numbers in another order for these."""
    model = gvi.load(written)
    table = _table()[["old", "size", "colour"]]
    typed = model.columns.typed(table)
    inputs = pd.DataFrame(model.inputs(table), columns=model.feature_names_in_)
    assert_close(inputs["old"], table["old"].astype(float))
    assert_close(model.learned_.predict(inputs)[:, 0], model.predict(table)["y_mean"])
    for other in (table, typed, inputs[inputs.columns[::-1]]):
        with pytest.raises(ValueError, match="but what was learned from has"):
            model.learned_.predict(other)


def test_the_page_has_scores_and_pictures_and_no_program(written):
    page = (written / "report.html").read_text()
    assert page.count("data:image/png;base64,iVBOR") == 4
    assert "<script" not in page
    for word in ("RMSE", "coverage of 90 %", "text that differs from row to row", "SquaredExp"):
        assert word in page


def test_predictions_stand_beside_the_columns_as_they_are(written, folder):
    text = "colour,note,size,old,y\nred,1.50,2.00,TRUE,\n,x,,False,7\npink,x,3,0,7\n"
    (folder / "new.csv").write_text(text)
    with pytest.warns(UserWarning, match=r"1 of 3 rows lie beyond all .* in colour \(1\)"):
        assert predict_file(written, folder / "new.csv", folder / "out.csv", size=2) == 3
    lines = (folder / "out.csv").read_text().splitlines()
    assert lines[0] == "colour,note,size,old,y,y_mean,y_sd,y_lower,y_upper,y_outside"
    assert [line.rsplit(",", 5)[0] for line in lines[1:]] == text.splitlines()[1:]
    assert [line.rpartition(",")[2] for line in lines[1:]] == ["", "", "colour"]
    whole = folder / "whole.csv"
    with pytest.warns(UserWarning, match="beyond"):
        predict_file(written, folder / "new.csv", whole)
    assert whole.read_text() == (folder / "out.csv").read_text()


@pytest.mark.slow
def test_classes_are_recognised(folder, capsys):
    table = _table().dropna(subset="y")
    table["kind"] = np.where(table["y"] > 45.0, "<big>", "small")
    table.drop(columns=["y", "id"]).to_csv(folder / "kinds.csv", index=False)
    output = folder / "kinds"
    command = ["learn", str(folder / "kinds.csv"), "--target", "kind", "--output", str(output)]
    assert main([*command, "--effort", "fast"]) == 0
    said = capsys.readouterr()
    assert "target 2 classes (<big> small)" in said.err
    assert re.search(r"accuracy +0\.[89]|accuracy +1", said.out)
    page = (output / "report.html").read_text()
    assert "&lt;big&gt;" in page
    assert "<big>" not in page
    assert main(["predict", str(output), str(folder / "kinds.csv")]) == 0
    predicted = pd.read_csv(folder / "kinds_predicted.csv")
    assert set(predicted["kind_outside"].dropna()) <= {"size"}  # some of the rows held out
    total = predicted["p(<big>)"] + predicted["p(small)"]
    assert_close(total, 1.0)
    clear = predicted[np.abs(predicted["p(<big>)"] - 0.5) > ROUNDING.float32]
    assert len(clear) > 50
    best = np.where(clear["p(<big>)"] > 0.5, "<big>", "small")
    np.testing.assert_array_equal(clear["kind_label"], best)
    assert (
        main(
            ["predict", str(output), str(folder / "kinds.csv"), "--coverage", "0.9", "--overwrite"]
        )
        == 2
    )
    assert "coverage is 0.9, which is that of intervals" in capsys.readouterr().err


@pytest.mark.slow
def test_a_class_of_a_single_row_is_learned_from(tmp_path):
    table = _table().dropna(subset="y").drop(columns="id")
    table["y"] = np.where(table["y"] > 45.0, "big", "small")
    table.iloc[20, table.columns.get_loc("y")] = "rare"
    table.to_csv(tmp_path / "data.csv", index=False)
    outcome = learn_table(tmp_path / "data.csv", "y", effort="fast")
    assert outcome.model.classes_.tolist() == ["big", "rare", "small"]
    _, held_out = outcome.held_out
    assert len(held_out) > 10
    assert "rare" not in held_out
    assert np.sum(outcome.rows["size"] == table["size"].iloc[20]) == 1
    rare = outcome.model.predict(table)["p(rare)"]
    assert 0.0 < np.mean(rare) < 0.1


def test_effort_predictor_and_loss_are_those_of_the_estimator(folder, written, monkeypatch):
    def stop(estimator, X, y):
        raise StopIteration(estimator.effort, estimator.predictor, estimator.loss)

    for kind in (gvi.GVIClassifier, gvi.GVIRegressor):
        monkeypatch.setattr(kind, "fit", stop)
    options = {"predictor": "none", "effort": "best", "held_out": 0.0}
    with pytest.raises(StopIteration, match=r"\('best', None, None\)"):
        learn_table(folder / "data.csv", "old", **options)
    with pytest.raises(StopIteration, match=r"\('best', None, 'robust'\)"):
        learn_table(folder / "data.csv", "y", loss="robust", **options)
    with pytest.raises(ValueError, match="loss robust is for a target of numbers; 'old' is of"):
        learn_table(folder / "data.csv", "old", loss="robust", **options)


@pytest.mark.slow
def test_outliers_of_a_target_are_learned_without(tmp_path, rng, capsys):
    x = rng.uniform(0.0, 10.0, 60)
    table = pd.DataFrame({"x": x, "y": 3.0 * x + rng.normal(size=60)})
    table.loc[[4, 20, 41], "y"] += [30.0, -40.0, 25.0]
    table.to_csv(tmp_path / "data.csv", index=False)
    command = ["learn", str(tmp_path / "data.csv"), "--target", "y", "--effort", "fast"]
    model = tmp_path / "model"
    assert main([*command, "--loss", "robust", "--held-out", "0", "--output", str(model)]) == 0
    assert re.search(r"outliers +[3-5] rows, left out", capsys.readouterr().out)
    found = gvi.load(model)
    assert {4, 20, 41} <= set(found.learned_.outliers.rows)
    predicted = found.predict(pd.DataFrame({"x": [5.0]}))
    assert_estimates(predicted["y_mean"], [15.0], predicted["y_sd"])
    assert float(predicted["y_sd"].iloc[0]) < 1.5


@pytest.mark.parametrize(
    ("values", "task", "found"),
    [
        ([1, 2, 3, 1, 2, 3], None, "classification"),
        ([1, 2, 3, 1, 2, 3], "regression", "regression"),
        ([1.5, 2.5, 1.5, 2.5], None, "regression"),
        ([1.5, 2.0, 1.5, 2.0], "classification", "classification"),
        (list(range(20)), None, "regression"),
        ([10, 20, 30, 10, 20, 40], None, "regression"),  # a value in a single row is no class
        ([1, 1, 2, 2, 3], "classification", "classification"),
        (["a", "a", "b", "b", "c"], None, "classification"),
        (["a", "b", "a", "b"], None, "classification"),
        ([True, False, True, False], None, "classification"),
    ],
)
def test_what_a_target_is(values, task, found):
    known, y, kind = target_of(pd.DataFrame({"y": values}), "y", task)
    assert kind == found
    assert known.all()
    assert len(y) == len(values)
    if kind == "classification":
        assert type_of_target(y) in ("binary", "multiclass")
        assert len(np.unique(y)) == len(np.unique(values))


WRONG = {
    "text to regress": (["--target", "colour", "--task", "regression"], "is not a number"),
    "text without classes": (["--target", "text"], "neither numbers nor classes"),
    "constant target": (["--target", "one"], "nothing to learn"),
    "numbers that are no classes": (["--target", "row", "--task", "classification"], "no classes"),
    "no row held out": (["--target", "y", "--held-out", "0.001"], "held-out is 0.001"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_said_in_a_line(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = pd.concat([_table()] * 2, ignore_index=True)
    table["text"] = [f"text {i}" for i in range(len(table))]
    table["one"] = 1.0
    table["row"] = np.arange(len(table))
    table.to_csv("data.csv", index=False)
    options, message = WRONG[case]
    assert main(["learn", "data.csv", *options]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert message in said[-1]
    assert "Traceback" not in "".join(said)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"split": "last"}, "split is 'last'; it must be one of "),
        ({"held_out": "0.2"}, r"held-out is '0\.2'; it must be a number"),
    ],
)
def test_an_option_that_there_is_not_is_refused(option, message, tmp_path):
    _table().to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(ValueError, match=message):
        prepare(tmp_path / "data.csv", "y", **option)


def test_a_file_without_rows_is_no_table(tmp_path, capsys):
    file = tmp_path / "data.csv"
    file.write_text("a,y\n")
    assert main(["learn", str(file), "--target", "y", "--output", str(tmp_path / "m")]) == 2
    assert "has no rows" in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("".join(map(chr, range(128, 160))) * 9, "new.csv cannot be read as a table"),
        ("size,old\n1,1\n", "lacks the columns ['colour']"),
        ("size,old,colour\nmany,1,red\n", "column size is of numbers, but it has 'many'"),
        ("size,old,colour,y_mean\n1,1,red,2\n", "has the columns ['y_mean'] already"),
    ],
)
def test_other_tables_to_predict_are_refused(content, message, written, tmp_path, capsys):
    file = tmp_path / "new.csv"
    file.write_bytes(content.encode("latin-1"))
    assert main(["predict", str(written), str(file)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


def test_predictions_beside_a_compressed_file_are_compressed(written, tmp_path):
    (tmp_path / "NEW.2.csv.gz").write_bytes(gzip.compress(b"size,old,colour\n2,1,red\n"))
    assert main(["predict", str(written), str(tmp_path / "NEW.2.csv.gz")]) == 0
    text = gzip.decompress((tmp_path / "NEW.2_predicted.csv.gz").read_bytes())
    assert text.startswith(b"size,old,colour,y_mean,")


def test_a_new_slip_is_missing_in_a_file_to_predict(written, tmp_path, capsys):
    file, rows = tmp_path / "new.csv", ["2.0,1,red", "oops,1,red"]
    file.write_text("\n".join(["size,old,colour", *rows]))
    assert main(["predict", str(written), str(file)]) == 0
    assert "but 1 of its cells are not, the first 'oops' in row 1" in capsys.readouterr().err
    lines = (tmp_path / "new_predicted.csv").read_text().splitlines()
    assert [line[: len(row)] for line, row in zip(lines[1:], rows, strict=True)] == rows


def test_columns_that_say_nothing_are_left_out():
    table = pd.DataFrame(
        {
            "number": [1.0, 2.0, 3.0],
            "empty": [None] * 3,
            "same": ["a"] * 3,
            "day": pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]),
        }
    )
    columns = Columns.of(table)
    assert columns.numbers == ["number"]
    assert set(columns.left_out) == {"empty", "same"}
    assert list(columns.dates) == ["day"]
    with pytest.raises(ValueError, match=r"no column can be learned from: 'empty' \(.*, 'same' \("):
        Columns.of(table[["empty", "same"]])
    with pytest.raises(ValueError, match="from: there is none beside the target"):
        Columns.of(table[[]])


def test_a_value_or_none_is_a_column_as_a_category_and_as_a_number():
    ticks = pd.DataFrame({"tick": ["x", None, "x", None], "one": [1.0, np.nan, np.nan, 1.0]})
    ticks["remark"] = ["see below", None, None, None]
    columns = Columns.of(ticks)
    assert list(columns.left_out) == ["remark"]
    inputs = Encoder.of(typed := columns.typed(ticks), columns).transform(typed)
    of_tick = np.corrcoef(inputs.T[-1], [1, 0, 1, 0])[0, 1]
    of_one = np.corrcoef(inputs.T[1], [1, 0, 0, 1])[0, 1]
    assert_close(np.abs([of_tick, of_one]), 1.0)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(written, tmp_path):
    """The largest part that is in memory is that of `size` rows."""
    rows = "2.0,red,1\n"
    (tmp_path / "long.csv").write_text("size,colour,old\n" + rows * 200_000)
    import tracemalloc

    tracemalloc.start()
    count = predict_file(written, tmp_path / "long.csv", tmp_path / "out.csv", size=5000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200_000
    assert peak < 40e6
    assert (tmp_path / "out.csv").read_bytes().count(b"\n") == 200_001


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lie beyond:UserWarning")
def test_parquet_is_read_and_written_in_parts(written, tmp_path):
    pytest.importorskip("pyarrow.parquet")
    _table().to_parquet(tmp_path / "new.parquet")
    paths = written, tmp_path / "new.parquet", tmp_path / "out.parquet"
    predict_file(*map(str, paths), size=25)
    found = pd.read_parquet(tmp_path / "out.parquet")
    assert len(found) == N
    expected = gvi.load(written).predict(_table())
    assert_close(found["y_mean"], expected["y_mean"])


@pytest.mark.slow
def test_each_of_many_categories_has_an_effect_of_its_own(tmp_path, rng):
    """The rarest are merged as indicators; a new subject is as uncertain as subjects differ."""
    subject = rng.permutation(np.repeat(np.arange(60), 6))
    effect, dose = 2.0 * rng.normal(size=60)[subject], rng.uniform(size=360)
    names = [f"subject {each:02d}" for each in subject]
    table = pd.DataFrame({"name": names, "dose": dose, "y": 3.0 * dose + effect})
    table["y"] += 0.3 * rng.normal(size=360)
    table[:300].to_csv(tmp_path / "data.csv", index=False)
    model = learn_table(tmp_path / "data.csv", "y", held_out=0).model
    found = model.predict(table[300:])
    assert np.sqrt(np.mean(np.square(found["y_mean"] - table["y"][300:]))) < 0.6
    unknown = model.predict(pd.DataFrame({"name": ["somebody"], "dose": [0.5]}))
    assert float(unknown["y_sd"].iloc[0]) > 3.0 * float(found["y_sd"].median())
    assert list(unknown["y_outside"]) == ["name"]

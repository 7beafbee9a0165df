from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpflow_gvi.experiments import data_sets
from gpflow_gvi.experiments.curves import FUNCTIONS, make_curve
from gpflow_gvi.experiments.data_sets import (
    UCI,
    GivenSplit,
    Images,
    RandomSplit,
    Rows,
    Small,
    Table,
    ThesisCurve,
    load,
)
from tests.tolerances import assert_close, assert_estimates


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv(data_sets.VARIABLE, raising=False)


@pytest.mark.parametrize("gaps", [5, 10])
def test_curves_follow_the_protocol(gaps):
    x = np.linspace(-2.0, 2.0, 1000)
    noises = []
    for number in range(10):
        parts = make_curve(number, gaps=gaps, seed=3)
        sizes = [len(parts[name][0]) for name in ("train", "validation", "test")]
        assert sizes == [800 - 40 * gaps, 200 - 10 * gaps, 50 * gaps]
        every = np.concatenate([np.hstack(part) for part in parts.values()])
        every = every[np.argsort(every[:, 0])]
        assert_close(every[:, 0], x)
        noises.append(every[:, 1] - FUNCTIONS[number](x))
        segments = np.round((parts["test"][0][:, 0] + 2.0) / 4.0 * 999).astype(int) // 50
        assert all(np.bincount(segments)[np.unique(segments)] == 50)
    assert_close(noises, np.tile(noises[0], (10, 1)))
    assert_estimates(np.std(noises[0]), 0.5, 0.5 / np.sqrt(2 * 1000))


def test_curves_depend_on_the_seed_and_on_nothing_else():
    first, again, other = (make_curve(3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["train"][1], again["train"][1])
    assert not np.array_equal(first["test"][0], other["test"][0])


@pytest.mark.parametrize(
    ("number", "x", "y"),
    [  # by hand
        (0, 3.0, 9.0),
        (1, 0.25, 2.0),
        (2, 0.5, -0.95),
        (3, 0.0, 0.6),
        (4, 0.25, 2.25),
        (5, 0.5, 2.0625),
        (6, 0.5, 1.0),
        (7, 1.0, -3.0),
        (8, 1.0, 1.0),
        (9, 0.0, 6.0),
    ],
)
def test_functions_of_the_curves(number, x, y):
    assert_close(FUNCTIONS[number](np.array(x)), y)


@pytest.mark.parametrize(
    ("number", "gaps"), [*((number, 5) for number in range(10)), (5, 10), (6, 10), (8, 10)]
)
def test_curves_of_the_thesis_follow_its_protocol(number, gaps):
    # All of its curves have one vector of noise.
    def noise(number, gaps):
        found = ThesisCurve(number=number, gaps=gaps).load()
        X, Y = (np.concatenate(parts)[:, 0] for parts in zip(*found.values(), strict=True))
        assert_close(np.sort(X), np.linspace(-2.0, 2.0, 1000))
        segments = np.round((found["test"].X[:, 0] + 2.0) / 4.0 * 999).astype(int) // 50
        assert list(np.bincount(segments)[np.unique(segments)]) == [50] * gaps
        return (Y - FUNCTIONS[number](X))[np.argsort(X)]

    found = noise(number, gaps)
    assert_close(found, noise(1, 5))
    assert_estimates(np.std(found), 0.5, 0.5 / np.sqrt(2 * 1000))


@pytest.fixture
def folder(tmp_path, rng):
    X, Y = rng.normal(size=(50, 3)), rng.normal(size=(50, 1))
    rows = np.stack([rng.permutation(50) for _ in range(2)])
    np.savez(tmp_path / "uci_yacht.npz", x=X, y=Y, train_idx=rows[:, :45], test_idx=rows[:, 45:])
    np.savez(tmp_path / "ts_co2_monthly.npz", x=X[:, :1], y=Y)
    images = rng.integers(0, 256, size=(20, 28, 28), dtype=np.uint8)
    digits = np.arange(20, dtype=np.uint8) % 10
    parts = {"x_train": images, "y_train": digits, "x_test": images[:5], "y_test": digits[:5]}
    np.savez(tmp_path / "img_mnist.npz", **parts)
    return tmp_path


def test_splits_of_the_literature(folder):
    with np.load(folder / "uci_yacht.npz") as file:
        X, rows = file["x"], file["test_idx"][1]
    found = load(UCI(kind="yacht"), GivenSplit(index=1), seed=0, data_dir=folder)
    np.testing.assert_array_equal(found["test"].X, X[rows])
    assert {name: len(part.X) for name, part in found.items()} == {"train": 45, "test": 5}
    with pytest.raises(ValueError, match=r"split\.index is 2; yacht has the splits 0 to 1"):
        load(UCI(kind="yacht"), GivenSplit(index=2), seed=0, data_dir=folder)


def test_folder_may_be_named_by_the_environment(folder, monkeypatch):
    monkeypatch.setenv(data_sets.VARIABLE, str(folder))
    assert UCI(kind="yacht").load()["test"].X.shape == (5, 3)


def test_images_become_rows_between_zero_and_one(folder):
    found = Images(kind="mnist", num_train=7).load(folder)
    assert found["train"].X.shape == (7, 784)
    assert found["test"].Y.shape == (5, 1)
    with np.load(folder / "img_mnist.npz") as file:
        assert_close(255.0 * found["test"].X.ravel(), file["x_test"].ravel())


@given(
    test=st.floats(0.0, 0.9),
    seed=st.integers(0, 9),
)
def test_every_row_has_one_role(test, seed):
    numbers = np.arange(40.0)[:, None]

    class Numbers(Table):
        def load(self, data_dir=None, index=0):
            return {"train": Rows(numbers, 2.0 * numbers)}

    data = Numbers(path="", inputs=("a",), outputs=("b",))
    found = load(data, RandomSplit(test=test), seed=seed)
    every = np.concatenate([rows.X for rows in found.values()])[:, 0]
    np.testing.assert_array_equal(np.sort(every), np.arange(40))
    for rows in found.values():
        np.testing.assert_array_equal(rows.Y, 2.0 * rows.X)
    assert ("test" in found) == (test > 0.0)
    again = load(data, RandomSplit(test=test), seed=seed)
    np.testing.assert_array_equal(again["train"].X, found["train"].X)


def test_too_few_rows_are_named(folder):
    with pytest.raises(ValueError, match="too few to set aside"):
        load(Small(kind="co2"), RandomSplit(test=0.999), seed=0, data_dir=folder)


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet"])
def test_columns_of_own_files(suffix, tmp_path, rng):
    a, b, c = rng.normal(size=(3, 6))
    path = tmp_path / f"own.{suffix}"
    if suffix == "csv":
        lines = [f"{x},{float(y)!r},text,{z}" for x, y, z in zip(a, b, c, strict=True)]
        path.write_text("\n".join(['a, "b" ,name,the c', *lines]), encoding="utf-8-sig")
        path.write_text(path.read_text("utf-8-sig").replace(' "b" ', "b"), encoding="utf-8-sig")
    elif suffix == "npz":
        np.savez(path, a=a, b=b, **{"the c": c})
    else:
        arrow = pytest.importorskip("pyarrow")
        arrow.parquet = pytest.importorskip("pyarrow.parquet")
        arrow.parquet.write_table(arrow.table({"a": a, "b": b, "the c": c}), path)
    table = Table(path=str(path), inputs=("the c", "a"), outputs=("b",))
    rows = table.load()["train"]
    assert_close(rows.X, np.stack([c, a], axis=1))
    assert_close(rows.Y, b[:, None])
    with pytest.raises(ValueError, match=r"no column 'z'; it has a, b"):
        Table(path=str(path), inputs=("z",), outputs=("b",)).load()


def test_an_array_of_several_columns_is_as_many_inputs_or_outputs(tmp_path, rng):
    X, x, Y = rng.normal(size=(6, 3)), rng.normal(size=6), rng.normal(size=(6, 2))
    path = tmp_path / "own.npz"
    np.savez(path, X=X, x=x, Y=Y)
    rows = Table(path=str(path), inputs=("X", "x"), outputs=("Y",)).load()["train"]
    np.testing.assert_array_equal(rows.X, np.hstack([X, x[:, None]]))
    np.testing.assert_array_equal(rows.Y, Y)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": np.zeros((6, 3, 1))}, r"'X' has shape \(6, 3, 1\); it must be \[N\]"),
        ({"Y": np.zeros(())}, r"'Y' has shape \(\)"),
        ({"Y": np.zeros(5)}, r"several lengths, {'X': 6, 'Y': 5}"),
        ({"X": np.diag([1.0] * 4 + [np.nan, np.inf])}, r"'X' has nothing in row 4, column 4, .* 2"),
        ({"Y": np.array(["2", "3", "x"] * 2)}, r"'Y' has 'x' in row 2, .*: 2 of its 6 cells"),
        ({"Y": np.zeros(6, "M8[ns]")}, r"'Y' has .*1970-01-01.* in row 0, .*: 6 of its 6"),
        ({"Y": np.zeros(6, complex)}, r"'Y' has '0j' in row 0"),
    ],
)
def test_arrays_that_are_no_columns_of_numbers_are_named(changed, message, tmp_path):
    np.savez(tmp_path / "own.npz", **{"X": np.zeros((6, 3)), "Y": np.zeros(6), **changed})
    with pytest.raises(ValueError, match=rf"own\.npz.*{message}"):
        Table(path=str(tmp_path / "own.npz"), inputs=("X",), outputs=("Y",)).load()


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1", "2", "x", "4"], "'b' has 'x' in row 2, .*: 1 of its 4 cells"),
        (["1", "", "3", "NA"], "'b' has nothing in row 1, .*: 2 of its 4 cells"),
        (["1", "2", "3", "inf"], "'b' has inf in row 3, .*: 1 of its 4 cells"),
        (["2020-01-01"] * 4, "'b' has '2020-01-01' in row 0"),
        (["", "true", "false", "true"], "'b' has nothing in row 0"),
    ],
)
def test_cells_that_are_no_numbers_are_named_by_column_and_row(cells, message, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["a,b", *(f"1,{cell}" for cell in cells)]))
    for inputs, outputs in (("a", "b"), ("b", "a")):
        with pytest.raises(ValueError, match=rf"own\.csv: {message}"):
            Table(path=str(path), inputs=(inputs,), outputs=(outputs,)).load()


def test_fingerprint_follows_the_content_of_a_file(tmp_path):
    path = tmp_path / "own.csv"
    table = Table(path=str(path), inputs=("a",), outputs=("b",))
    assert table.fingerprint == ""
    path.write_text("a,b\n1,2\n")
    before = table.fingerprint
    path.write_text("a,b\n1,3\n")
    assert table.fingerprint != before


def test_unreadable_tables_are_named(tmp_path):
    def load(name, content):
        (tmp_path / name).write_bytes(content)
        Table(path=str(tmp_path / name), inputs=("a",), outputs=("b",)).load()

    with pytest.raises(ValueError, match="is empty"):
        load("own.csv", b"")
    with pytest.raises(ValueError, match="no readable npz"):
        load("own.npz", b"PK\x03\x04half")
    with pytest.raises(FileNotFoundError, match="no such file"):
        Table(path=str(tmp_path / "no.csv"), inputs=("a",), outputs=("b",)).load()


def test_data_sets_without_a_source_say_how_to_get_them(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .* train_idx"):
        UCI(kind="protein").load()
    with pytest.raises(FileNotFoundError, match=r"uci_protein\.npz is not there"):
        UCI(kind="protein").load(tmp_path)


def test_images_are_downloaded_by_keras_where_no_folder_has_them(monkeypatch):
    import keras

    images, labels = np.full((3, 28, 28), 255, np.uint8), np.full(3, 4, np.uint8)
    parts = ((images, labels), (images[:2], labels[:2]))
    monkeypatch.setattr(keras.datasets.fashion_mnist, "load_data", lambda: parts)
    found = Images(kind="fashion_mnist").load()
    np.testing.assert_array_equal(found["train"].X, np.ones((3, 784)))
    np.testing.assert_array_equal(found["test"].Y, np.full((2, 1), 4.0))


def test_without_a_network_the_remedy_is_named(monkeypatch):
    import keras

    def load_data():
        raise Exception("no route to host")

    monkeypatch.setattr(keras.datasets.mnist, "load_data", load_data)
    with pytest.raises(FileNotFoundError, match=r"no route to host.*--data-dir"):
        Images(kind="mnist").load()

from __future__ import annotations

import base64
import collections
import csv
import hashlib
import itertools
import json
from html.parser import HTMLParser

import numpy as np
import pytest
import yaml

from gpflow_gvi import metrics
from gpflow_gvi.__main__ import main
from gpflow_gvi.experiments.report import ranking, report
from gpflow_gvi.experiments.report.runs import read_runs
from tests.tolerances import assert_close

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\u2028 $total"


def record(name, data="yacht", /, *, validation=0.0, test=0.0, score="nll", **axes):
    return {
        "name": name,
        "data": data,
        "axes": axes,
        "status": "done",
        "validation": {score: validation},
        "test": {score: test},
        "seconds": 1.5,
    }


def failed(name, error="Traceback\nValueError: no", data="yacht", /, **axes):
    return {"name": name, "data": data, "axes": axes, "status": "failed", "error": error}


def write(folder, records):
    lines = (json.dumps(of, ensure_ascii=False) for of in records)
    (folder / "results.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")


class Page(HTMLParser):
    """What a browser would find."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.scripts, self.texts = [], [], []
        self.tables = []
        self._open = None
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open in ("td", "th", "strong"):
            self.tables[-1][-1][-1] += data
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def many(rng):
    """Two data sets × six settings × five splits, in any order, and their scores by setting."""
    scores = collections.defaultdict(list)
    records = []
    for data, kernel, rate, split in itertools.product(
        ("yacht", "energy"), ("rbf", "nngp", None), (0.001, 0.01), range(5)
    ):
        validation, test = rng.normal(size=2)
        scores[data, kernel, rate].append((validation, test))
        axes = {"data": data, "kernel": kernel, "rate": rate, "split.index": split, "fixed": True}
        records.append(record(f"run{len(records)}", data, validation=validation, test=test, **axes))
    rng.shuffle(records)
    return records, scores


@pytest.mark.parametrize(("score", "better"), [("nll", min), ("accuracy", max)])
def test_means_errors_and_ranks(many, score, better, tmp_path):
    records, scores = many
    for of in records:
        for part in ("validation", "test"):
            of[part] = {score: of[part]["nll"]}
    write(tmp_path, records)
    found = ranking.rank(read_runs(tmp_path), score=score)
    assert found.axes == ["kernel", "rate"]
    assert found.repeated == ["split.index"]
    assert found.constant == {"fixed": "true"}
    assert len(found.settings) == len(scores) == 12
    for row, (data, kernel, rate) in enumerate(found.settings.itertuples(index=False)):
        of = np.array(scores[data, None if kernel == "null" else kernel, float(rate)])
        for column in range(2):
            assert_close(found.means.iloc[row, column], np.mean(of[:, column]))
            error = np.std(of[:, column], ddof=1) / np.sqrt(5)
            assert_close(found.errors.iloc[row, column], error)
    for data in ("yacht", "energy"):
        means = {key: np.mean(of, axis=0)[0] for key, of in scores.items() if key[0] == data}
        _, kernel, rate = better(means, key=means.get)
        assert best_levels(found, data) == ["null" if kernel is None else kernel, str(rate)]
        ranked = list(found.means.iloc[:, 0][found.settings["data"] == data])
        assert ranked == sorted(ranked, reverse=better is max)


def best_levels(found, data):
    [row] = np.flatnonzero((found.settings["data"] == data) & (found.places["rank"] == 1))
    return list(found.settings.iloc[row, 1:])


def test_test_scores_do_not_matter_to_ranks(many, tmp_path):
    records, _ = many
    orders = []
    for sign in (1.0, -1.0):
        for of in records:
            of["test"]["nll"] *= sign
        write(tmp_path, records)
        found = ranking.rank(read_runs(tmp_path))
        orders.append([*found.settings.to_numpy().tolist(), *found.places["rank"]])
    assert orders[0] == orders[1]


def test_effects_are_means_of_differences_from_the_median(many, tmp_path):
    records, scores = many
    write(tmp_path, records)
    found = ranking.rank(read_runs(tmp_path))
    means = {key: np.mean(of, axis=0)[0] for key, of in scores.items()}
    for level, effect in ranking.effects(found)["kernel"].iterrows():
        kernel = None if level == "null" else level
        shifts = [
            value - np.median([v for (other, *_), v in means.items() if other == data])
            for (data, of, _), value in means.items()
            if of == kernel
        ]
        assert_close(effect["mean"], np.mean(shifts))
        assert_close(effect["error"], np.std(shifts, ddof=1) / 2.0)
        assert_close(effect["median"], np.median(shifts))
        best = [
            min((v, k[1]) for k, v in means.items() if k[0] == d)[1] for d in ("yacht", "energy")
        ]
        assert effect["best"] == best.count(kernel)


def test_orientations_are_those_of_the_metrics():
    known = metrics.METRICS | metrics.CLASS_METRICS
    targets = {name for name, metric in known.items() if metric.orientation == "target"}
    assert targets.isdisjoint(ranking.ORIENTATION)
    for name, orientation in ranking.ORIENTATION.items():
        if not name.startswith("conformal_"):
            assert known[name].orientation == orientation
    assert set(ranking.ORIENTATION) >= set(known) - targets


def test_to_fail_or_to_diverge_is_no_merit(tmp_path):
    write(
        tmp_path,
        [
            *(record(f"a{n}", validation=5.0, kernel="whole", seed=n) for n in range(3)),
            *(record(f"b{n}", validation=1.0, kernel="failed", seed=n) for n in range(2)),
            failed("b2", kernel="failed", seed=2),
            *(record(f"c{n}", validation=0.0, kernel="null", seed=n) for n in range(2)),
            record("c2", validation=None, test=None, kernel="null", seed=2),
            {**record("d0", kernel="unranked", seed=0), "validation": None},
        ],
    )
    found = ranking.rank(read_runs(tmp_path))
    assert list(found.settings["kernel"]) == ["whole", "null", "failed", "unranked"]
    assert list(found.places["rank"]) == [1, 2, 3, 0]
    assert list(found.places["failed"]) == [0, 0, 1, 0]
    assert found.texts["validation nll"][1] == "0 ± 0 (1 not finite)"
    assert found.texts["validation nll"][3] == "—"
    page = Page(report(tmp_path))
    assert page.tables[1][-1] == ["—", "yacht", "unranked", "—", "0", "1.5", "1"]


def test_torn_repeated_and_unknown_lines(tmp_path, caplog):
    lines = [
        json.dumps(failed("a", seed=0)),
        json.dumps(record("b", validation=2.0, seed=1)),
        '{"name": "torn", "da{"name": "c"}',
        "[1, 2]",
        "",
        json.dumps({**record("d"), "status": "running"}),
        json.dumps(record("a", validation=1.0, seed=0)),
        '{"name": "e", "data": "ya',
    ]
    (tmp_path / "results.jsonl").write_bytes("\n".join(lines).encode() + b"\xc3")
    page = Page(report(tmp_path))
    assert [text for text in caplog.messages if "skipped" in text] == [
        f"results.jsonl:{number} is no result of a run; it was skipped." for number in (3, 4, 6, 8)
    ]
    assert "results.jsonl:8" in page.text
    assert "2 done, 0 failed" in page.text
    [mean] = ranking.rank(read_runs(tmp_path)).means["validation nll"]
    assert mean == 1.5


def test_hostile_strings_do_no_harm(tmp_path):
    write(
        tmp_path,
        [
            record("../../outside", HOSTILE, **{HOSTILE: HOSTILE, "n": 1}, seed=0),
            record(HOSTILE, HOSTILE, **{HOSTILE: "other", "n": 10}, seed=0),
            failed("failed", f"{HOSTILE}</pre>", HOSTILE, **{HOSTILE: HOSTILE, "n": 2}),
        ],
    )
    with (tmp_path / "results.jsonl").open("a") as file:  # halves of characters, huge numbers
        file.write(json.dumps(record("half", "\ud800", **{HOSTILE: "\udfff"})) + "\n")
        for seed in range(2):
            of = record(f"big{seed}", "d", validation=1e308, n=10**400, seed=seed)
            file.write(json.dumps(of) + "\n")
    path = report(tmp_path)
    page = Page(path)
    assert len(page.all("script")) == 2
    assert not page.all("img")
    assert not [name for _, of in page.elements for name in of if name.startswith("on")]
    assert HOSTILE in page.text
    table = json.loads(page.scripts[0])
    assert HOSTILE in table["levels"][0]
    assert table["levels"][table["names"].index("n")][:3] == ["1", "2", "10"]
    # No program but its own, and nothing from elsewhere.
    [policy] = [of["content"] for of in page.all("meta") if "http-equiv" in of]
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [of for _, of in page.elements if {"src", "href"} & set(of)]


def test_page_is_readable_without_a_program(many, tmp_path):
    records, _ = many
    write(tmp_path, records)
    page = Page(report(tmp_path))
    assert "never used to choose" in page.text
    settings = next(table for table in page.tables if table[0][0] == "rank")
    assert settings[0] == [
        *("rank", "data", "kernel", "rate", "validation nll", "test nll", "seconds", "runs")
    ]
    assert len(settings) == 13
    found = ranking.rank(read_runs(tmp_path))
    assert settings[1][:4] == ["1", "energy", *best_levels(found, "energy")]
    assert all("scope" in of for of in page.all("th"))


def test_methods_in_columns_with_the_best_by_validation_in_bold(tmp_path):
    scores = {"GWI": (1.0, 5.0), "SVGP": (2.0, 3.0)}
    write(
        tmp_path,
        [
            record(f"{method}{n}", validation=v, test=t + n, method=method, seed=n)
            for method, (v, t) in scores.items()
            for n in range(2)
        ],
    )
    path = report(tmp_path)
    # The mean of t and t + 1, whose standard error is 1/2.
    assert Page(path).tables[0] == [
        ["data", "GWI", "SVGP"],
        ["yacht", "5.50 ± 0.50", "3.50 ± 0.50"],
    ]
    assert "<strong>5.50 ± 0.50</strong>" in path.read_text("utf-8")
    assert "<strong>3.50" not in path.read_text("utf-8")


def test_columns_of_other_metrics_and_of_time(tmp_path):
    records = [record(f"{kernel}{n}", kernel=kernel, seed=n) for kernel in "ab" for n in range(2)]
    for number, of in enumerate(records):
        of["test"] |= {"rmse": float(number), "coverage": 0.9, "crps": 1.0}
        of["seconds"] = None if number == 0 else float(number)
    write(tmp_path, records)
    settings = Page(report(tmp_path)).tables[1]
    assert settings[0][3:] == [
        *("validation nll", "test nll", "test rmse", "test coverage", "seconds", "runs")
    ]
    # The means of 0, 1 and of 2, 3 have the standard error 1/2.
    rows = {row[2]: row[5:] for row in settings[1:]}
    assert rows["a"] == ["0.50 ± 0.50", "0.9 ± 0", "1 (1 not finite)", "2"]
    assert rows["b"] == ["2.50 ± 0.50", "0.9 ± 0", "2.50 ± 0.50", "2"]


def test_other_data_are_other_data_sets(tmp_path):
    write(
        tmp_path,
        [
            record(f"{number}{gaps}{seed}", f"curve{number}", **axes)
            for number, gaps, seed in itertools.product((2, 10), (5, 10), (0, 1))
            for axes in [{"data.number": number, "data.gaps": gaps, "data.seed": seed}]
        ],
    )
    found = ranking.rank(read_runs(tmp_path))
    names = [f"curve{number}, data.gaps {gaps}" for number in (2, 10) for gaps in (5, 10)]
    assert found.levels["data"] == names
    assert list(found.places["runs"]) == [2, 2, 2, 2]


def test_failed_runs_by_traceback(tmp_path):
    errors = ["Traceback\nValueError: no"] * 30 + ["Traceback\nMemoryError: full", " \n"]
    write(tmp_path, [failed(f"run{n}", error, seed=n) for n, error in enumerate(errors)])
    page = Page(report(tmp_path))
    assert "0 done, 32 failed" in page.text
    assert "30 × ValueError: no" in page.text
    assert "and 10 more" in page.text
    assert "1 × MemoryError: full" in page.text
    assert "1 × —" in page.text


def test_table_of_the_runs(tmp_path):
    records = [
        record("a", validation=None, test=0.1, kernel="rbf, ard", level=1),
        record("b", test=0.2, kernel=None, level="one"),
        failed("c", kernel="x"),
    ]
    write(tmp_path, records)
    report(tmp_path, output=tmp_path / "pages" / "page.html")
    with (tmp_path / "pages" / "results.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert rows[0]["axes.kernel"] == "rbf, ard"
    assert [float(row["test.nll"] or "nan") for row in rows[:2]] == [0.1, 0.2]
    assert rows[2]["error"].endswith("ValueError: no")
    assert {path.name for path in tmp_path.iterdir()} == {"results.jsonl", "pages"}


def write_run(folder, config, nll):
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "metrics.json").write_text(json.dumps({"test": {"nll": nll}}))
    (folder / "run.json").write_text(json.dumps({"seconds": {"training": 2.0}}))


def test_folders_of_runs(tmp_path, caplog):
    for number, (covariance, seed) in enumerate(
        itertools.product(("cholesky", "diagonal"), (0, 1))
    ):
        config = {"data": {"kind": "curve", "number": 3}, "covariance": covariance, "seed": seed}
        write_run(tmp_path / f"run{number}", config, float(number))
    write_run(tmp_path / "torn", {"data": "yacht"}, 1.0)
    (tmp_path / "torn" / "metrics.json").write_text('{"test": {"nl')
    write_run(tmp_path / "strange", {"data": "yaht"}, 1.0)
    (tmp_path / "half.partial").mkdir()
    (tmp_path / "no_run").mkdir()
    found = read_runs(tmp_path)
    assert list(found.table["name"]) == ["run0", "run1", "run2", "run3"]
    assert dict(found.levels.iloc[2]) == {"covariance.kind": "diagonal", "seed": "0"}
    assert [note.split()[0] for note in found.notes] == [
        "half.partial",
        "no_run",
        "strange",
        "torn",
    ]
    report(tmp_path)
    assert len(caplog.messages) == 4
    ranked = ranking.rank(found)
    assert list(ranked.settings["covariance.kind"]) == ["cholesky", "diagonal"]
    assert list(ranked.means["test nll"]) == [0.5, 2.5]
    assert list(ranked.places["rank"]) == [0, 0]


def test_a_single_folder_and_settings_that_are_left_out(tmp_path):
    write_run(tmp_path / "run0", {"data": "yacht"}, 0.0)
    assert read_runs(tmp_path).levels.empty
    report(tmp_path)
    for number, inducing in enumerate((50, {"power": 2.0}), 1):
        config = {"data": "yacht", "regulariser": {"inducing": inducing}}
        write_run(tmp_path / f"run{number}", config, float(number))
    levels = read_runs(tmp_path).levels
    assert list(levels["regulariser.inducing"]) == ["null", "50", "—"]
    assert list(levels["regulariser.inducing.power"]) == ["—", "—", "2.0"]
    report(tmp_path)


def test_settings_that_a_model_does_not_have_are_not_said_of_it(tmp_path):
    q = {"regulariser": {"kernel": "matern52"}}
    given = {
        "exact": {"model": "exact_gp"},
        "network": {"model": "network"},
        "p_alone": {**q, "train_q": False},
        "q_diagonal": {**q, "covariance": "diagonal"},
        "q_full": {**q, "covariance": "cholesky"},
    }
    for number, (name, config) in enumerate(given.items()):
        write_run(tmp_path / name, {"data": "yacht", **config}, float(number))
    levels = read_runs(tmp_path).levels
    assert list(levels.to_dict("list").items()) == [
        ("model.kind", ["exact_gp", "network", "gvi", "gvi", "gvi"]),
        ("train_q", ["—", "—", "false", "true", "true"]),
        ("covariance.kind", ["—", "—", "—", "diagonal", "cholesky"]),
    ]
    report(tmp_path)


def picture(path, colour):
    from matplotlib.image import imsave

    path.parent.mkdir(exist_ok=True)
    imsave(path, np.full((4, 8, 3), colour, np.uint8))
    return base64.b64encode(path.read_bytes()).decode()


def test_figures_of_the_best_and_of_nothing_else(tmp_path):
    folder = tmp_path / "my <sweep>"
    folder.mkdir()
    write(
        folder,
        [
            record("good", validation=0.0, kernel="a"),
            record("bad", validation=1.0, kernel="b"),
            record("../outside", "energy", kernel="a"),
            record("broken", "naval", kernel="a"),
            record("not_drawn", "wine", kernel="a"),
        ],
    )
    coded = {
        path: picture(folder / path / "prediction.png", colour)
        for colour, path in enumerate(("good", "bad", "../outside"))
    }
    (folder / "broken").mkdir()
    (folder / "broken" / "prediction.png").write_bytes(b"\x89PNG")
    (folder / "not_drawn").mkdir()
    path = report(folder)
    sources = [of["src"] for of in Page(path).all("img")]
    assert f"data:image/png;base64,{coded['good']}" in sources
    assert len(sources) == 2
    text = path.read_text("utf-8")
    assert "<title>my &lt;sweep&gt;</title>" in text
    assert "<h1>my &lt;sweep&gt;</h1>" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nowhere"], "nowhere is no folder"),
        (["."], "holds neither a results.jsonl"),
        (["sweep", "--score", "coverage"], "score is 'coverage'; these runs can be ranked by nll"),
        (["sweep", "--over", "sede"], "over names sede; the axes are kernel, seed."),
    ],
)
def test_errors_of_the_command(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep").mkdir()
    write(tmp_path / "sweep", [record("a", kernel="rbf", seed=1)])
    assert main(["report", *options]) == 2
    assert message in capsys.readouterr().err


def test_command_with_its_options(tmp_path, capsys):
    write(
        tmp_path,
        [
            record(f"{kernel}{fold}", score="crps", kernel=kernel, fold=fold)
            for kernel in ("rbf", "nngp")
            for fold in range(3)
        ],
    )
    options = ["--score", "crps", "--over", "fold", "--output", str(tmp_path / "page.html")]
    assert main(["report", str(tmp_path), *options]) == 0
    assert str(tmp_path / "page.html") in capsys.readouterr().out
    page = Page(tmp_path / "page.html")
    assert "test crps" in page.text
    assert [row[-1] for row in page.tables[1][1:]] == ["3", "3"]

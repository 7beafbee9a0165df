"""The page of a report in a browser: Chromium and its driver, if they are installed."""

from __future__ import annotations

import itertools
import json
import shutil

import pytest

from gpflow_gvi.experiments.report import report

webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
DRIVER = shutil.which("chromedriver")

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver")

HOSTILE = "</script><script>document.title = 'harmed'</script><img src=x onerror=alert(1)>"
AXES = {
    "data": ("yacht", "energy"),
    "kernel": ("rbf & co", "nngp", HOSTILE),
    "learning_rate": (0.001, 0.01, 0.1),
    "layers": tuple(range(1, 16)),
}
"""270 settings: more than are shown at once."""


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Chromium's own sandbox does not start as root, nor in most containers.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    with (folder / "results.jsonl").open("w", encoding="utf-8") as file:
        for number, levels in enumerate(itertools.product(*AXES.values())):
            axes = dict(zip(AXES, levels, strict=True))
            of = {"name": f"run{number}", "data": levels[0], "axes": axes, "status": "done"}
            # The better it validates the worse it tests; by number, 99 comes after 100.
            metrics = {"validation": {"nll": number / 10.0}, "test": {"nll": 100.0 - number}}
            file.write(json.dumps(of | metrics) + "\n")
        axes = {**dict.fromkeys(AXES), "data": "yacht"}
        unranked = {"name": "null", "data": "yacht", "axes": axes, "status": "done"}
        file.write(
            json.dumps(unranked | {"validation": {"nll": None}, "test": {"nll": 0.0}}) + "\n"
        )
        failed = {**unranked, "name": "failed", "status": "failed", "error": f"E\n{HOSTILE}"}
        file.write(json.dumps(failed) + "\n")
    return report(folder).as_uri()


@pytest.fixture
def page(browser, address):
    browser.get("about:blank")
    return Page(browser, address)


class Page:
    """What a reader sees and does."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address
        browser.get(address)

    def find(self, css):
        return self.browser.find_elements("css selector", css)

    @property
    def rows(self):
        script = (
            "return [...document.querySelectorAll('#settings tbody tr')]"
            ".map(row => [...row.cells].map(cell => cell.textContent))"
        )
        return self.browser.execute_script(script)

    @property
    def count(self):
        return self.find("#count")[0].text

    def column(self, name):
        heads = [head.text.strip(" ▲▼") for head in self.find("#settings th")]
        return [row[heads.index(name)] for row in self.rows]

    def control(self, name):
        return self.browser.find_element("xpath", f"//label[starts-with(., '{name}')]/*")

    def choose(self, name, level):
        from selenium.webdriver.support.ui import Select

        Select(self.control(name)).select_by_visible_text(level)

    def sort(self, name):
        self.browser.find_element("xpath", f"//th/button[. = '{name}']").click()

    def open(self, fragment):
        self.browser.get("about:blank")
        self.browser.get(f"{self.address}#{fragment}")


def test_all_settings_a_part_at_a_time(page):
    assert page.count == "271 of 271 settings"
    assert len(page.rows) == 200
    [more] = page.find("#more")
    more.click()
    assert len(page.rows) == 271
    assert not more.is_displayed()
    assert page.rows[:2] == [
        ["1", "energy", "rbf & co", "0.001", "1", "13.5", "-35", "1"],
        ["1", "yacht", "rbf & co", "0.001", "1", "0", "100", "1"],
    ]
    assert page.rows[-1][0] == "—"


def test_filters_in_the_page_and_in_its_address(page):
    page.choose("kernel", "rbf & co")
    assert page.count == "90 of 271 settings"
    page.choose("data", "yacht")
    assert set(page.column("kernel")) == {"rbf & co"}
    assert page.column("rank") == [str(rank) for rank in range(1, 46)]
    search = page.control("search")
    search.send_keys("0.01")
    assert set(page.column("learning_rate")) == {"0.01"}
    page.sort("test nll")
    rows = page.rows
    link = page.browser.current_url
    page.open(link.partition("#")[2])
    assert page.rows == rows
    assert page.control("search").get_attribute("value") == "0.01"
    page.control("search").clear()
    page.choose("kernel", "all")
    page.choose("data", "all")
    assert page.count == "271 of 271 settings"
    # What is changed in the address of an open page counts as well; what is unknown does not.
    page.browser.execute_script("location.hash = 'data=energy&kernel=none&sort=nothing'")
    page.browser.execute_async_script("setTimeout(arguments[0], 50)")
    assert page.count == "135 of 271 settings"


def test_order_by_each_heading(page):
    page.choose("data", "yacht")
    page.sort("validation nll")
    ascending = page.column("validation nll")
    assert ascending[-1] == "—"
    assert [float(value) for value in ascending[:-1]] == [n / 10.0 for n in range(135)]
    page.sort("validation nll")
    assert page.column("validation nll")[:2] == ["13.4", "13.3"]
    assert page.column("validation nll")[-1] == "—"  # what has no score is last both ways
    [head] = page.find("th[aria-sort=descending]")
    assert head.text.startswith("validation nll")
    page.sort("layers")
    assert page.column("layers")[-2] == "15"  # as numbers, not as text


def test_strings_from_runs_stay_strings(page):
    page.choose("kernel", HOSTILE)
    assert page.count == "90 of 271 settings"
    assert set(page.column("kernel")) == {HOSTILE}
    [details] = page.find("details")
    details.click()
    assert HOSTILE in details.text
    assert page.browser.title.startswith("sweep")
    assert len(page.find("script")) == 2
    assert not page.find("img")


def test_nothing_is_wrong_or_loaded(page):
    assert page.browser.get_log("browser") == []
    assert page.browser.execute_script("return performance.getEntriesByType('resource')") == []


def test_controls_have_names(page):
    for control in page.find("select, input, button"):
        assert control.accessible_name
    page.find("th button")[0].send_keys("\ue007")  # the key Enter
    assert page.find("th[aria-sort=descending]")[0].text.startswith("rank")

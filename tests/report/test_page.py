"""The page: its numbers are the results' numbers, it is complete in itself, and a browser shows it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inbounds.cli.main import main
from inbounds.errors import InvalidInputError
from inbounds.experiments.results import save_result
from inbounds.report.page import (
    band_data,
    chosen,
    embedded,
    film_as_text,
    make_server,
    page_data,
    render_page,
)
from inbounds.report.published import Published, labels, summarise, verdict
from inbounds.report.statistics import Interval
from tests.experiments.synthetic_runs import make_result, write_run


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    read: dict[str, Any] = json.loads(found.group(1))
    return read


def test_the_page_holds_the_numbers_of_the_results() -> None:
    result = make_result()
    page = data_in(render_page(page_data([result], {}, "A title", {})))
    (shown,) = page["results"]
    assert shown["final"]["return"]["values"] == [10.0, 11.0, 12.0, 13.0, 14.0]
    assert shown["final"]["return"]["mean"] == 12.0 and shown["final"]["return"][
        "deviation"
    ] == pytest.approx(1.58114)
    assert shown["curves"]["return"]["step"] == [100, 200, 300]
    assert shown["curves"]["return"]["band"][0] == [3.0, 4.0, 5.0]
    assert page["totals"]["environment_steps"] == 1500 and page["totals"]["complete"] == 1


def test_the_page_says_how_long_a_method_was_prepared() -> None:
    origin = make_result().provenance[0]
    for known, expected in (({"preparation_seconds": 31.25}, 31.25), ({}, None)):
        (shown,) = page_data([make_result(provenance=({**origin, **known},))], {}, "A title", {})["results"]
        assert shown["preparation"] == expected


def test_the_page_names_no_other_host() -> None:
    page = render_page(page_data([make_result()], {}, "A title", {}))
    addresses = set(re.findall(r"https?://[^\"'\s<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a format, which nobody asks for
    assert "default-src 'none'" in page and "connect-src" not in page


def test_nothing_in_the_data_can_leave_its_element() -> None:
    text = embedded({"title": "</script><script>alert(1)</script>"})
    assert "<" not in text and json.loads(text)["title"].startswith("</script>")
    assert "<b>" not in render_page(page_data([make_result()], {}, "<b>", {})).split("<style>")[0]


def test_the_page_says_what_the_constraint_is() -> None:
    results = [make_result(), make_result(task="Heating", name="h", formula="a <= obs[0]")]
    tasks = {task["id"]: task for task in page_data(results, {}, "t", {})["tasks"]}
    assert tasks["reacher"]["formula"] == "sum_i a_i^2 <= 0.05 and -1 <= a_i <= 1"  # ours is known
    assert tasks["Heating"]["formula"] == "a <= obs[0]"
    assert [tasks[name]["mujoco"] for name in ("reacher", "Heating")] == [True, False]


def test_a_page_without_published_tasks_has_no_notes_on_the_paper() -> None:
    own = make_result(task="Heating", name="h")
    assert page_data([own], {}, "t", {})["notes"] == {}
    assert page_data([own, make_result()], {}, "t", {})["notes"] != {}


def test_the_page_has_what_a_learner_logged_about_itself(tmp_path: Path) -> None:
    from inbounds.experiments.collecting import read_results

    (shown,) = page_data(read_results([write_run(tmp_path / "run")]), {}, "t", {})["results"]
    assert shown["diagnostics"]["alpha"]["band"][0] == [0.1, 0.1, 0.1]
    assert "steps_per_second" not in shown["diagnostics"] and "acceptance" in shown["diagnostics"]


def test_results_of_two_simulators_make_no_page() -> None:
    other = make_result(name="x", task="ant")
    other = make_result(
        name="x", task="ant", provenance=({**other.provenance[0], "packages": {"mujoco": "4.0.0"}},)
    )
    with pytest.raises(InvalidInputError, match="MuJoCo"):
        page_data([make_result(), other], {}, "A title", {})


@pytest.mark.parametrize(
    ("mean", "interval", "expected"),
    [
        (10.0, (10.0, 9.0, 11.0), "above"),
        (9.9, (9.9, 9.5, 10.2), "level"),
        (9.2, (9.2, 9.1, 9.3), "level"),
        (7.0, (7.0, 6.0, 8.0), "below"),
    ],
)
def test_a_verdict_compares_with_the_published_mean_and_forgives_noise(
    mean: float, interval: tuple[float, float, float], expected: str
) -> None:
    assert verdict(mean, Interval(*interval), Published(10.0, 1.0, "Table 4", "Reacher")) == expected
    assert verdict(mean, Interval(*interval), None) == "alone"


@pytest.mark.parametrize(("steps", "expected"), [(300, "early"), (300_000, "below")])
def test_what_trained_too_briefly_is_not_called_worse_than_the_paper(steps: int, expected: str) -> None:
    result = dataclasses.replace(make_result(), steps=steps)
    result.final["return"] = [-100.0, -101.0, -102.0, -103.0, -104.0]
    shown = page_data([result], {}, "t", {})["results"][0]
    assert shown["final"]["return"]["verdict"] == expected


def test_methods_are_compared_with_their_own_published_numbers() -> None:
    assert summarise(make_result(), "return").published is not None
    assert summarise(make_result(learner="dpre"), "return").published is None
    assert summarise(make_result(learner="dpre"), "valid_action_rate").published is not None


def test_a_preset_is_named_only_where_a_learner_has_several() -> None:
    results = [make_result(), make_result(preset="paper"), make_result(learner="dpre", preset="paper")]
    assert labels(results) == {"aram-default": "ARAM", "aram-paper": "ARAM (paper)", "dpre-paper": "DPre+"}


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    kept = chosen(list(range(1000)), 60)
    assert len(kept) <= 60 and kept[-1] == 999
    assert band_data([1, 2], [[0.1, None]], 60) is None


def test_wall_clock_is_shown_only_for_seeds_that_trained_alone() -> None:
    together = page_data([make_result()], {}, "t", {})["results"][0]
    alone = page_data([make_result(seeds=(0,))], {}, "t", {})["results"][0]
    assert together["curves"]["seconds"] is None and alone["curves"]["seconds"] == [1.0, 2.0, 3.0]


def test_a_film_travels_inside_the_page(tmp_path: Path) -> None:
    (tmp_path / "film.gif").write_bytes(b"GIF89a")
    assert film_as_text(tmp_path / "film.gif") == "data:image/gif;base64,R0lGODlh"
    assert film_as_text(tmp_path / "film.mp4") is None


def test_a_report_is_written_beside_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs" / "demo")
    assert main(["report", str(tmp_path / "runs"), "--title", "Demo"]) == 0
    page = data_in((tmp_path / "runs" / "report.html").read_text())
    assert page["title"] == "Demo" and page["results"][0]["name"] == "demo"
    assert "1 result)" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["no runs", "no path", "nothing given"])
def test_a_report_of_nothing_is_refused(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"no runs": [str(tmp_path)], "no path": [str(tmp_path / "x")], "nothing given": []}[damage]
    assert main(["report", *arguments]) == 2
    assert "inbounds: " in capsys.readouterr().err


def test_reference_policies_beside_the_results_reach_the_page(tmp_path: Path) -> None:
    save_result(make_result(), tmp_path / "paper")
    uniform = {"mean": -11.0, "deviation": 4.0, "episodes": 100}
    references = {"tasks": {"reacher": {"played": {"uniform": uniform}}}}
    (tmp_path / "references.json").write_text(json.dumps(references))
    assert main(["report", str(tmp_path / "paper"), "--out", str(tmp_path / "page.html")]) == 0
    (task,) = data_in((tmp_path / "page.html").read_text())["tasks"]
    assert task["references"]["uniform"]["mean"] == -11.0


TITLE = os.fsdecode(b"caf\xe9")
"""A name in no encoding, as a folder may have one."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = write_run(tmp_path / "run", is_final=False)

    def collect() -> dict[str, Any]:
        from inbounds.experiments.collecting import read_results

        return page_data(read_results([folder]), {}, TITLE, {})

    server = make_server(collect)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


def append_evaluation(folder: Path, step: int) -> None:
    lines = (folder / "evaluations.jsonl").read_text().splitlines()[-2:]
    with open(folder / "evaluations.jsonl", "a") as handle:
        for line in lines:
            handle.write(json.dumps({**json.loads(line), "step": step}) + "\n")


def test_a_live_page_answers_with_what_the_run_has_written_by_now(live: tuple[str, Path]) -> None:
    address, folder = live
    with urllib.request.urlopen(address) as answer:
        page = answer.read().decode()
    assert "connect-src 'self'" in page and r"caf\udce9" in page
    append_evaluation(folder, 400)
    with urllib.request.urlopen(f"{address}/data.json") as answer:
        assert json.loads(answer.read())["results"][0]["steps"] == 400
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/config.json")


def many_results() -> list[Any]:
    tasks = ("reacher", "halfcheetah", "hopper", "hoppervel", "ant", "nsfnet", "bss3z", "bss5z")
    learners = ("aram", "dpre", "spre", "nfwpo", "flowpg", "focops", "sac", "td3", "srad", "drad")
    return [
        make_result(task=task, learner=learner, suite=suite, name=f"{task}-{learner}-{suite}")
        for suite in ("paper", "scalability", "reviewers", "smoke")
        for task in tasks
        for learner in learners
    ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    import os

    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("INBOUNDS_BROWSER")
    if not path:
        pytest.skip(
            "NOT RUN: nobody looked at the page. Set INBOUNDS_BROWSER to a Chromium, see `make test-slow`"
        )
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visit:
    """A page in a browser, with everything it complained about and asked for."""

    def __init__(self, browser: Any, address: str) -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("#summary-table td")

    def foreign(self) -> list[str]:
        return [url for url in self.requests if not url.startswith(("file:", "data:", "http://127.0.0.1"))]


@pytest.mark.slow
def test_a_browser_shows_the_page_without_complaint_and_without_asking_anybody(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        render_page(page_data([make_result(), make_result(learner="dpre", name="d")], {}, "t", {}))
    )
    visit = Visit(browser, path.as_uri())
    assert visit.complaints == [] and visit.foreign() == []
    cell = visit.page.locator("td[data-result='reacher-aram-default']")
    assert cell.get_attribute("data-mean") == "12" and cell.inner_text().startswith("12.0 ± 1.6")
    visit.page.click("#summary-metric button[data-key=valid_action_rate]")
    assert visit.page.locator("td[data-result='reacher-aram-default']").inner_text().startswith("0.70 ± 0.16")
    cell = visit.page.locator("td[data-result='reacher-aram-default']")
    cell.click()
    assert "inbounds train reacher" in visit.page.locator("#detail").inner_text()
    before = visit.page.locator("#curve-grid path").count()
    visit.page.click("#method-legend button[data-method=dpre-default]")
    assert visit.page.locator("#curve-grid path").count() == before - 2
    visit.page.hover("#trade-legend button[data-method=dpre-default]")
    assert visit.page.locator("#trade-grid.dimmed .lit").count() == 0  # it is hidden
    visit.page.hover("#trade-legend button[data-method=aram-default]")
    assert visit.page.locator("#trade-grid.dimmed .lit").count() > 0
    visit.page.click("#curve-grid .panel")
    assert visit.page.locator("#curve-grid .panel.large").count() == 1
    theme = visit.page.evaluate("document.documentElement.dataset.theme")
    visit.page.click("#theme")
    assert visit.page.evaluate("document.documentElement.dataset.theme") != theme
    assert visit.complaints == [] and visit.foreign() == []


@pytest.mark.slow
def test_a_browser_switches_between_suites_of_a_page_with_320_results(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_page(page_data(many_results(), {}, "t", {})))
    visit = Visit(browser, path.as_uri())
    assert visit.page.locator("#summary-table thead th").count() == 1 + 8
    assert visit.page.locator("#summary-table tbody tr").count() == 10 + 1  # methods, and the paper's line
    visit.page.select_option("#suite", "reviewers")
    assert visit.page.locator("td[data-result='ant-aram-reviewers']").count() == 1
    visit.page.fill("#origin-filter", "nsfnet-srad")
    assert visit.page.locator("#origin-table tbody tr").count() == 1
    assert visit.complaints == [] and visit.foreign() == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800, 1600])
def test_no_part_of_the_page_is_wider_than_the_window_or_absurdly_tall(
    browser: Any, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "page.html"
    path.write_text(render_page(page_data(many_results()[:20], {}, "t", {})))
    visit = Visit(browser, path.as_uri())
    visit.page.set_viewport_size({"width": width, "height": 900})
    visit.page.wait_for_timeout(300)  # figures are drawn again for the new width
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.page.evaluate("document.querySelector('#notes').scrollHeight") < 3_000
    letters = visit.page.evaluate(
        "[...document.querySelectorAll('.panel svg')].map((svg) => svg.clientWidth / svg.viewBox.baseVal.width)"
    )
    assert len(letters) > 0 and all(0.85 < scale < 1.25 for scale in letters)


@pytest.fixture
def own_run(browser: Any, tmp_path: Path) -> Any:
    """A page about one finished run, with one seed, on a task of a user."""
    episode = {"step": [0, 1, 2], "share": [0.5, 1.0, 0.9], "reward": [1.0] * 3, "total": 3.0}
    own = make_result(suite="", seeds=(0,), task="Heating", formula="a <= obs[0]", episode=episode)
    path = tmp_path / "own.html"
    path.write_text(render_page(page_data([dataclasses.replace(own, command="x" * 300)], {}, "t", {})))
    return Visit(browser, path.as_uri())


@pytest.mark.slow
def test_one_finished_run_of_an_own_task_reads_as_finished_and_fills_the_page(own_run: Any) -> None:
    page = own_run.page
    assert page.locator("[data-formula=Heating]").inner_text() == "a ≤ obs[0]"
    assert "1 of 1" in page.locator("#tiles").inner_text()
    assert "finished, 300 steps" in page.locator("#summary-table").inner_text()
    assert "not finished" not in page.locator("body").inner_text()
    assert "paper" not in page.locator("#summary").inner_text()
    assert page.locator("#detail").is_visible()
    width = "(id) => document.querySelector(id).getBoundingClientRect().width"
    assert page.evaluate(width, "#curve-grid .panel") > 0.95 * page.evaluate(width, "#curve-grid")
    assert not page.locator("#trade").is_visible() and not page.locator("nav a[href='#trade']").is_visible()
    assert page.locator("#episode-grid svg[role=img]").count() == 1
    assert "MuJoCo" not in page.locator("#origin").inner_text()
    assert own_run.complaints == []


@pytest.mark.slow
def test_a_table_that_is_wider_than_its_place_says_so_until_it_is_scrolled(own_run: Any) -> None:
    scroller = "document.querySelector('#origin .scroller')"
    assert own_run.page.evaluate(f"{scroller}.classList.contains('more')")
    assert "scroll" in own_run.page.evaluate(f"getComputedStyle({scroller}, '::after').content")
    own_run.page.evaluate(f"{scroller}.firstElementChild.scrollLeft = 99999")
    own_run.page.wait_for_timeout(100)
    assert not own_run.page.evaluate(f"{scroller}.classList.contains('more')")


@pytest.mark.slow
def test_no_label_stands_where_a_curve_may_be(browser: Any, own_run: Any, tmp_path: Path) -> None:
    path = tmp_path / "paper.html"
    path.write_text(render_page(page_data([make_result()], {}, "t", {})))
    for page in (own_run.page, Visit(browser, path.as_uri()).page):
        assert page.locator(".key").count() >= 1  # the names of reference lines stand above the plot
        inside = page.evaluate(
            """() => [...document.querySelectorAll('.panel svg[role=img]')].flatMap((svg) => {
                 const axis = svg.querySelector('line.axis[x1="46"]');  // bars have names in front of them
                 if (!axis) return [];
                 const left = Number(axis.getAttribute('x1')), bottom = Number(axis.getAttribute('y1'));
                 return [...svg.querySelectorAll('text')].map((text) => text.getBBox())
                   .filter((box) => box.x + box.width > left + 1 && box.y < bottom - 1).map((box) => box.x);
               })"""
        )
        assert inside == []


@pytest.mark.slow
def test_diagnostics_are_a_tab_of_the_learning_curves(browser: Any, tmp_path: Path) -> None:
    from inbounds.experiments.collecting import read_results

    path = tmp_path / "page.html"
    path.write_text(
        render_page(page_data(read_results([write_run(tmp_path / "run", is_final=False)]), {}, "t", {}))
    )
    visit = Visit(browser, path.as_uri())
    assert not visit.page.locator("#diagnostics").is_visible()
    visit.page.click("#curve-metric button[data-key=diagnostics]")
    assert visit.page.locator("[data-quantity=alpha] svg").is_visible()
    assert not visit.page.locator("#curve-grid .panel").count()
    visit.page.click("#curve-metric button[data-key=return]")
    assert not visit.page.locator("#diagnostics").is_visible() and visit.complaints == []


@pytest.mark.slow
def test_two_runs_of_one_experiment_are_two_rows(browser: Any, tmp_path: Path) -> None:
    from inbounds.experiments.collecting import read_results

    for name in ("first", "second"):
        write_run(tmp_path / name, is_final=False)
    path = tmp_path / "page.html"
    path.write_text(render_page(page_data(read_results([tmp_path]), {}, "t", {})))
    words = Visit(browser, path.as_uri()).page.locator("#summary-table").inner_text()
    assert "ARAM (first)" in words and "ARAM (second)" in words


@pytest.mark.slow
def test_an_own_task_beside_a_published_one_has_nothing_of_the_paper(browser: Any, tmp_path: Path) -> None:
    results = [make_result(suite=""), make_result(suite="", task="Heating", name="h", formula="a <= obs[0]")]
    path = tmp_path / "page.html"
    path.write_text(render_page(page_data(results, {}, "t", {})))
    visit = Visit(browser, path.as_uri())
    quoted = visit.page.locator("#summary-table tr.quoted td")
    assert [text.strip() != "" for text in quoted.all_inner_texts()] == [True, True, False]
    assert visit.page.locator("td[data-result=h] .mark").count() == 0
    assert visit.page.locator("#cost-task button").count() == 2


@pytest.mark.slow
def test_single_runs_that_nobody_planned_are_not_called_missing(browser: Any, tmp_path: Path) -> None:
    own = make_result(suite="", task="Heating", name="h", learner="dpre", formula="a <= obs[0]")
    path = tmp_path / "page.html"
    path.write_text(render_page(page_data([make_result(suite=""), own], {}, "t", {})))
    words = Visit(browser, path.as_uri()).page.locator("#summary-table").inner_text()
    assert "not run yet" not in words and "–" in words


@pytest.mark.slow
def test_a_choice_of_one_is_not_offered(own_run: Any) -> None:
    assert not own_run.page.locator("#cost-task").is_visible()
    assert not own_run.page.locator("#episode-task").is_visible()
    assert "ARAM on Heating" in own_run.page.locator("#episode-grid").inner_text()
    assert "click it to hide" not in own_run.page.locator("#curve-hint").inner_text()
    assert own_run.page.locator("#notes-title").inner_text() == "Definitions"


@pytest.mark.slow
def test_every_seed_of_a_merged_result_is_traced_to_its_own_command(browser: Any, tmp_path: Path) -> None:
    result = make_result(seeds=(0, 1))
    origins = tuple({**result.provenance[0], "seeds": [seed], "command": f"train {seed}"} for seed in (0, 1))
    path = tmp_path / "page.html"
    merged = dataclasses.replace(result, provenance=origins, command="train 0")
    path.write_text(render_page(page_data([merged], {}, "t", {})))
    page = Visit(browser, path.as_uri()).page
    assert page.locator("#origin-table td.command").all_inner_texts() == ["train 0", "train 1"]
    assert page.locator("#detail dd code").all_inner_texts() == ["train 0", "train 1"]


@pytest.mark.slow
def test_a_browser_follows_a_run(browser: Any, live: tuple[str, Path]) -> None:
    address, folder = live
    visit = Visit(browser, address)
    assert "300 steps" in visit.page.locator("#summary-table").inner_text()
    append_evaluation(folder, 400)
    deadline = time.monotonic() + 20
    while "400 steps" not in visit.page.locator("#summary-table").inner_text():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert visit.complaints == [] and visit.foreign() == []

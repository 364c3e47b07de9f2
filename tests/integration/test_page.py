"""The report page in a real Chromium: from disk, by mouse and by keyboard, on a phone, on paper, in the dark, and while
a run goes on."""

import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.report import gather, look, page
from accord.runs.comparison import comparison
from accord.runs.reader import find, load
from conftest import blobs, mlp

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed: pip install 'accord-fl[browser]'"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine: apt-get install chromium"),
]

EVIL = "<img src=x onerror=document.title='broken'>"
WIDE, NARROW = {"width": 1200, "height": 900}, {"width": 390, "height": 800}
STUDY = {
    "study": "s", "protocol": 1, "title": "A study", "command": "accord reproduce s", "paper": "tmlr", "table": "2",
    "axes": ["rule"], "compare": "rule", "against": "mean", "seeds": [0], "rules": ["held-out", "last10"],
    "cells": [
        {
            "values": {"rule": rule}, "done": 1, "runs": 1, "rounds": [8, 8],
            "figures": {by: {"point": {}, "by_seed": {"0": {"test": ours}}} for by in ("held-out", "last10")},
            "printed": [{"value": theirs, "std": "", "note": "", "metric": "test accuracy", "window": ""}],
        }
        for rule, ours, theirs in (("mean", 0.9, 91.5), ("gma", 0.93, 92.0))
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real runs: three settings, two of them with two seeds, in a small grid of tau; a client with an evil name; a
    study's results."""
    folder = tmp_path_factory.mktemp("page") / "runs"
    fed = blobs()
    named = {client if client != "c12" else EVIL: rows for client, rows in fed.unseen.items()}
    fed = accord.data.Federation(fed.x, fed.y, fed.train, fed.heldout, named, name="blobs")
    for mask, seeds in ((None, (0,)), (accord.gma(0.2), (0, 1)), (accord.gma(0.9), (0, 1))):
        for seed in seeds:
            accord.fit(
                mlp(), fed, accord.fedavg(mask=mask), rounds=8, sample=4, evaluate_every=1, seed=seed, folder=folder
            )
    (folder / "study.json").write_text(json.dumps(STUDY))
    return folder


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("file") / "report.html"
    file.write_text(page(gather(look([folder]))))
    return file


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A fresh tab. At its end it must have said nothing on the console and asked nobody but its own file or server."""
    context = chromium.new_context(viewport=WIDE, color_scheme="light")
    tab = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    yield tab
    context.close()
    # the browser's own word for a server that has stopped
    assert not [text for text in said if "ERR_CONNECTION_REFUSED" not in text], said
    assert all(url.startswith(("file://", "http://127.0.0.1:", "data:")) for url in asked), asked


def opened(tab: Any, file: Path) -> Any:
    tab.goto(file.as_uri())
    tab.wait_for_selector("#curve-chart svg")
    return tab


def cells(tab: Any) -> list[list[str]]:
    """The table's rows as text, in the order shown."""
    rows = tab.eval_on_selector_all(
        "#table tbody tr", "rows => rows.map(row => [...row.children].map(cell => cell.innerText.trim()))"
    )
    return [[re.sub(r"\s+", " ", cell) for cell in row] for row in rows]


@pytest.mark.parametrize("rule", ["held-out", "last10", "oracle"])
def test_the_table_is_that_of_accord_show_by_every_rule(tab: Any, file: Path, folder: Path, rule: str) -> None:
    opened(tab, file)
    tab.check(f"#rule input[value='{rule}']")
    told = comparison([load(run) for run in find([folder])], rule)
    assert cells(tab) == [[row[0], *row[1:]] for row in told[1:]]
    assert tab.inner_text("#rule-about").startswith(f"By {rule}: ")


def test_columns_are_sorted_by_mouse_and_keyboard(tab: Any, file: Path) -> None:
    opened(tab, file)
    column = [heading.strip() for heading in tab.locator("#table thead th").all_inner_texts()].index("unseen")
    button = tab.locator("#table thead button", has_text=re.compile("^unseen$"))

    def values() -> list[float]:
        return [float(row[column].split()[0]) for row in cells(tab)]

    button.click()
    assert values() == sorted(values(), reverse=True)
    assert tab.locator("th[aria-sort=descending]").inner_text().strip() == "unseen"
    tab.keyboard.press("Enter")  # the heading has kept the focus, though the table was drawn anew
    assert values() == sorted(values())
    assert tab.locator("th[aria-sort=ascending]").count() == 1
    tab.locator("#table thead button").first.click()
    assert [row[0] for row in cells(tab)] == sorted(row[0] for row in cells(tab))


def test_a_curve_tells_its_figures_under_the_mouse_and_the_arrow_keys(tab: Any, file: Path) -> None:
    opened(tab, file)
    box = tab.locator("#curve-chart").bounding_box()
    tab.locator("#curve-chart").scroll_into_view_if_needed()
    tab.locator("#curve-chart").hover(position={"x": box["width"] / 2, "y": 150})
    tip = tab.locator("#curve-chart .tip")
    tip.wait_for()
    assert (
        re.match(r"round \d", tip.inner_text())
        and "fedavg + gma(0.2)" in tip.inner_text()
        and " to " in tip.inner_text()
    )
    tab.focus("#curve-chart")
    for number in (1, 2):
        tab.keyboard.press("ArrowRight")
        assert tip.inner_text().startswith(f"round {number}\n")
    tab.keyboard.press("Escape")
    tip.wait_for(state="hidden")


def test_the_figures_of_a_chart_can_be_opened_as_a_table(tab: Any, file: Path, folder: Path) -> None:
    opened(tab, file)
    tab.focus("#curves summary")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#curves .numbers tbody tr")
    rows = tab.locator("#curves .numbers tbody tr").all_inner_texts()
    (run,) = [run for run in map(load, find([folder])) if run.label == "fedavg"]
    last = run.history[-1][1]["splits"]["unseen"]["accuracy"]["by_sample"]
    assert len(rows) == 8 and f"{100 * last:.2f}" in rows[-1].split("\t")


def test_only_ticked_rows_are_drawn(tab: Any, file: Path) -> None:
    opened(tab, file)
    assert tab.locator("#curves .legend li").count() == 3
    tab.uncheck("#table tbody tr:first-child input")
    assert tab.locator("#curves .legend li").count() == 2
    tab.click("#pick button:has-text('None')")
    assert tab.is_hidden("#curves") and tab.is_visible("#table")
    tab.click("#pick button:has-text('All')")
    assert tab.locator("#curves .legend li").count() == 3


def test_every_section_is_there_and_says_what_it_shows(tab: Any, file: Path) -> None:
    opened(tab, file)
    for chart in ("curve", "bar", "gap", "client", "agreement", "grid", "paper"):
        assert tab.locator(f"#{chart}-chart svg").count() == 1, chart
        assert len(tab.get_attribute(f"#{chart}-chart", "aria-label")) > 40
    for chart, told in (
        ("bar", "held-out"),
        ("gap", "participation gap"),
        ("agreement", "round 1"),
        ("grid", "seeds"),
        ("paper", "theirs"),
    ):
        tab.focus(f"#{chart}-chart")
        tab.keyboard.press("ArrowRight")
        assert told in tab.locator(f"#{chart}-chart .tip").inner_text()
    assert "0.2" in tab.inner_text("#grid-chart") and "algorithm.mask.tau" in tab.inner_text("#grid-chart")
    tab.click("#every summary >> nth=0")
    tab.wait_for_selector("#every td:has-text('train.sample')")


def test_an_evil_name_is_shown_as_it_is(tab: Any, file: Path) -> None:
    opened(tab, file)
    dots = "charts.get('client-chart').chart.getOption().series[0].data"
    index = tab.evaluate(f"name => {dots}.findIndex(dot => dot.value[2] === name)", EVIL)
    assert index >= 0
    tab.evaluate(
        "index => charts.get('client-chart').chart.dispatchAction({type: 'showTip', seriesIndex: 0, dataIndex: index})",
        index,
    )
    assert EVIL in tab.locator("#client-chart .tip").inner_text()
    assert tab.locator("img").count() == 0 and "accord report" in tab.title()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(tab: Any, file: Path) -> None:
    tab.set_viewport_size(NARROW)
    opened(tab, file)
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    widths = tab.eval_on_selector_all(".chart svg", "all => all.map(svg => svg.getBoundingClientRect().right)")
    assert len(widths) == 7 and max(widths) <= NARROW["width"]
    tab.set_viewport_size(WIDE)
    for _ in range(100):  # the page's policy lets nobody evaluate text, the browser's own waiting included
        if tab.locator("#curve-chart svg").bounding_box()["width"] > 800:
            break
        tab.wait_for_timeout(100)
    else:
        pytest.fail("a wider window must give wider charts")


def test_long_names_fit_on_a_phone(tab: Any, tmp_path: Path) -> None:
    """Every name beside a chart is there, no line of one lies on a line of another, and selects with them do not widen
    the page."""
    for n in range(4):
        more = {"lr": 0.01 + 0.01 * n, "momentum": 0.5 + 0.1 * n, "weight_decay": 0.001 * (n + 1)}
        accord.fit(
            mlp(),
            blobs(),
            accord.fedavg(mask=accord.gma(0.4)),
            rounds=2,
            sample=4,
            evaluate_every=1,
            folder=tmp_path / "runs",
            **more,
        )
    file = tmp_path / "report.html"
    file.write_text(page(gather(look([tmp_path / "runs"]))))
    tab.set_viewport_size(NARROW)
    opened(tab, file)
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    for chart in ("client-chart", "bar-chart", "gap-chart"):
        boxes = tab.eval_on_selector_all(
            f"#{chart} svg text",
            "all => all.map(one => { const b = one.getBoundingClientRect(); return [one.textContent, b.top,"
            " b.bottom] })",
        )
        lines = sorted(
            (top, bottom, words)
            for words, top, bottom in boxes
            if re.search("[a-z]{3}", words) and "client" not in words
        )
        assert sum(words.startswith("fedavg") for _, _, words in lines) == 4, lines
        assert all(above[1] <= below[0] + 2 for above, below in itertools.pairwise(lines)), lines


def brightness(tab: Any) -> float:
    colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def test_dark_follows_the_system_and_the_switch(tab: Any, file: Path) -> None:
    tab.emulate_media(color_scheme="dark")
    opened(tab, file)
    assert brightness(tab) < 60
    dark = tab.inner_html("#curve-chart")
    tab.check("#theme input[value=light]")
    assert brightness(tab) > 200 and tab.inner_html("#curve-chart") != dark
    tab.check("#theme input[value=auto]")
    assert brightness(tab) < 60 and tab.inner_html("#curve-chart") == dark
    tab.emulate_media(color_scheme="light")
    tab.check("#theme input[value=dark]")
    assert brightness(tab) < 60


def test_clients_left_out_in_turn_come_first_and_all_columns_are_in_sight(tab: Any, tmp_path: Path) -> None:
    methods = {"averaging": accord.fedavg(), "masked": accord.fedavg(mask=accord.gma(0.4))}
    fed = replace(blobs(clients=10, unseen=0), name="blobs")
    accord.leave_one_out(mlp(), fed, methods, rounds=2, seeds=(0, 1), folder=tmp_path / "runs")
    file = tmp_path / "report.html"
    file.write_text(page(gather(look([tmp_path / "runs"]))))
    opened(tab, file)
    shown = tab.eval_on_selector_all("section:not([hidden])", "sections => sections.map(one => one.id)")
    assert shown[:2] == ["left-out", "results"]
    head = tab.locator("#left-out-table thead th").all_inner_texts()
    assert len(head) == 14 and head[-2:] == ["mean", "worst"]
    room = tab.eval_on_selector("#left-out .scroll", "box => [box.scrollWidth, box.clientWidth]")
    assert room[0] <= room[1], "the mean and the worst are not beyond the edge"
    judged = [re.search(r"unseen=\['(c\d+)", row[0])[1] for row in cells(tab)]  # type: ignore[index]
    assert judged == sorted(judged, key=lambda client: int(client[1:])), "rows that can be compared stand together"
    assert "only those with the same ones can be compared" in tab.inner_text("#rule-about")


def test_paper_is_light_and_holds_every_chart(tab: Any, file: Path) -> None:
    tab.emulate_media(color_scheme="dark")
    opened(tab, file)
    tab.emulate_media(media="print", color_scheme="dark")
    tab.set_viewport_size({"width": 720, "height": 1000})
    assert brightness(tab) == 255 and tab.is_hidden(".bar")
    boxes = tab.eval_on_selector_all(
        ".chart svg", "all => all.map(svg => svg.getBoundingClientRect()).map(box => [box.right, box.height])"
    )
    assert len(boxes) == 7 and all(right <= 720 and height > 60 for right, height in boxes)
    sheets = tab.pdf(format="A4")
    assert sheets.startswith(b"%PDF") and len(sheets) > 20_000


def test_a_live_page_follows_a_run_and_tells_when_the_server_stops(tab: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "accord", "report", "--live", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            tab.goto(server.stderr.readline().split()[0])
            assert tab.inner_text("h1") == "No runs yet"

            def look_in_between(event: Any) -> None:
                if event.round in (2, 4):
                    tab.wait_for_selector(f"#table td:has-text('unfinished, round {event.round}')", timeout=20_000)
                    tab.wait_for_selector("#curve-chart svg")

            accord.fit(mlp(), blobs(), rounds=5, sample=4, evaluate_every=1, folder=tmp_path, hooks=[look_in_between])
            tab.wait_for_selector("#table td:has-text('unfinished')", state="detached", timeout=20_000)
            assert [row[2] for row in cells(tab)] == ["5"]
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=20) == 0
            tab.wait_for_selector("#live:has-text('the server has stopped')", timeout=20_000)
        finally:
            server.kill()

"""The page in headless Chromium: it loads without an error, a click on a node shows its text, keys do what they say."""

from __future__ import annotations

import json
import shutil

import pytest

from rlsearch.report import report
from tests.report import fake_run
from tests.report.test_page import HOSTILE, hostile_run

pytestmark = pytest.mark.slow
SWITCHES = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium on the path: apt-get install chromium")
    with playwright.sync_playwright() as play:
        running = play.chromium.launch(executable_path=program, args=list(SWITCHES))
        yield running
        running.close()


@pytest.fixture
def show(browser):
    """Opens a report at a width, and checks in the end that nothing was logged or requested but the file."""
    pages, troubles = [], []

    def opened(run_dir, *, width):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: request.url.startswith("file:") or troubles.append(request.url))
        page.goto(report(run_dir).as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert troubles == []


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return fake_run.write(tmp_path_factory.mktemp("runs") / "run", steps=40, snapshots=2, trees=4, group=8, seed=0)


def written(run_dir, step):
    return json.loads((run_dir / "rollouts" / f"step_{step:06d}.json").read_text())["trees"]


def path_text(nodes, index):
    parts = []
    while index >= 0:
        parts.insert(0, nodes[index]["text"])
        index = nodes[index]["parent"]
    return "".join(parts)


@pytest.mark.parametrize("question", [0, 1], ids=["chains", "branching"])
def test_a_click_on_any_node_shows_the_path_to_it(show, run_dir, question):
    page = show(run_dir, width=1600)
    page.select_option("#step", label="20")
    page.select_option("#question", str(question))
    nodes = written(run_dir, 20)[question]["nodes"]
    assert page.locator(".node").count() == len(nodes)
    for index in (0, 2, len(nodes) // 2, len(nodes) - 1):
        page.locator(f".node[data-node='{index}']").click()
        shown = "".join(page.locator("#path .tokens").all_text_contents()).replace("\u23ce", "")
        assert shown == path_text(nodes, index)
    assert page.locator("#path .end").inner_text().startswith(f"reward {nodes[-1]['reward']:.2f}")


def test_a_token_tells_its_log_probability_and_advantage(show, run_dir):
    page = show(run_dir, width=1000)
    page.select_option("#question", "0")
    nodes = written(run_dir, 40)[0]["nodes"]
    page.locator(".node[data-node='1']").click()
    page.locator("#path .own").nth(1).hover()
    token = nodes[1]["tokens"][1]
    tip = page.locator("#tip").inner_text().replace("\u2212", "-")
    assert f"log-probability {token['logp']:.2f}" in tip
    assert f"{token['advantage']:+.2f}" in tip or token["advantage"] == 0
    page.locator("#path .seen").first.hover()
    assert "not sampled" in page.locator("#tip").inner_text()


def test_sampled_tokens_are_coloured_by_sign_and_observed_ones_are_not(show, run_dir):
    page = show(run_dir, width=1000)
    colours = page.evaluate(
        """() => [...document.querySelectorAll('#path .own, #path .seen')].map(
             s => [s.token.sampled, s.token.advantage, getComputedStyle(s).backgroundColor])"""
    )
    blue = {colour for sampled, advantage, colour in colours if sampled and advantage > 0}
    clear = {colour for sampled, _, colour in colours if not sampled}
    assert clear == {"rgba(0, 0, 0, 0)"}
    assert blue and all(colour.startswith("rgba(20, 110, 190") for colour in blue)


def test_keys_walk_the_tree_and_the_curves(show, run_dir):
    page = show(run_dir, width=1000)
    page.select_option("#question", "0")
    page.locator(".node[data-node='1']").click()
    page.keyboard.press("ArrowRight")
    assert page.locator(".node[aria-selected=true]").get_attribute("data-node") == "2"
    page.keyboard.press("Home")
    assert page.locator(".node[aria-selected=true]").get_attribute("data-node") == "0"
    page.mouse.move(0, 0)  # so that no chart scrolls under a resting pointer, which would read there instead
    chart = page.locator("svg[data-chart]").nth(2)
    chart.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    readings = page.locator("figure output").all_inner_texts()
    assert sum(text.startswith("step 2:") for text in readings) >= 8


def test_the_config_is_searched(show, run_dir):
    page = show(run_dir, width=1000)
    page.locator("details.config summary").click()
    page.fill("#find", "optimizer schedule")
    assert page.locator("#values tr:visible").count() == 2
    page.fill("#find", "no such key")
    assert page.locator("#none").is_visible()


@pytest.mark.parametrize("width", [400, 700, 1600])
def test_nothing_spills_over_the_side(show, run_dir, width):
    page = show(run_dir, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_hostile_text_is_shown_as_text(show, tmp_path):
    page = show(hostile_run(tmp_path / "run"), width=1000)
    assert page.locator("img").count() == 0
    assert page.locator("#asked").text_content() == HOSTILE.replace("\ud83d", "?")
    assert page.locator("#path .own").first.text_content() == HOSTILE.replace("\ud83d", "?")


def test_an_empty_run_opens(show, tmp_path):
    assert show(tmp_path, width=1000).locator("text=Not yet.").count() == 4

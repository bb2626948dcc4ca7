"""The page: whole without a network, harmless whatever text a run holds, small, and ready at any time of a run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from rlsearch.report import report
from rlsearch.report.page import embed
from tests.report import fake_run

HOSTILE = "</script><img src=x onerror=alert(1)><b>bold</b> <!-- & \u2028 \ud83d &lt; {name} </title>"


class Elements(HTMLParser):
    """Names of all elements and attributes, and the text of scripts."""

    def __init__(self, page):
        super().__init__()
        self.names, self.scripts, self.attributes = [], [], set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        if self.names and self.names[-1] == "script" and data.strip():
            self.scripts.append(data)


def read(path):
    return path.read_text(encoding="utf-8")


def hostile_run(run_dir):
    fake_run.write(run_dir, steps=6, snapshots=1, trees=1, group=4, seed=0)
    (run_dir / "config.json").write_text(json.dumps({HOSTILE: {"a": HOSTILE}, "model": HOSTILE}))
    line = {"stage": HOSTILE, "step": 1, HOSTILE: 1.0}
    (run_dir / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    token = {"text": HOSTILE, "sampled": True, "logp": -0.5, "advantage": 1.0}
    node = {"parent": -1, "kind": "answer", "text": HOSTILE, "tokens": [token], "reward": 1.0, "searches": 0}
    snapshot = {"step": 1, "trees": [{"question": HOSTILE, "answers": [HOSTILE], "nodes": [node]}]}
    (run_dir / "rollouts" / "step_000006.json").write_text(json.dumps(snapshot))
    return run_dir


def test_a_run_that_has_written_nothing_says_not_yet_for_each_part(tmp_path):
    assert read(report(tmp_path)).count("Not yet.") == 4


def test_each_part_may_be_missing(tmp_path):
    fake_run.write(tmp_path, steps=10, snapshots=1, trees=2, group=4, seed=0)
    for name in ("summary.json", "metrics.jsonl", "config.json", "evaluations.jsonl", "rollouts/step_000010.json"):
        (tmp_path / name).unlink()
        assert "<h1>" in read(report(tmp_path))


def test_the_page_asks_nothing_of_a_network(tmp_path):
    page = read(report(fake_run.write(tmp_path, steps=10, snapshots=1, trees=2, group=4, seed=0)))
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not {"link", "img", "iframe", "base"} & set(Elements(page).names)


def test_the_policy_allows_exactly_the_script_of_the_page(tmp_path):
    page = read(report(tmp_path))
    allowed = re.search(r"script-src 'sha256-([^']+)'", page).group(1)
    script = Elements(page).scripts[-1]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() == allowed
    assert "default-src 'none'" in page


def test_text_of_a_run_never_becomes_markup(tmp_path):
    page = read(report(hostile_run(tmp_path / "run")))
    elements = Elements(page)
    assert "img" not in elements.names
    assert "onerror" not in elements.attributes
    assert len(elements.scripts) == 3
    strings = json.loads(elements.scripts[1])["strings"]
    assert strings == [HOSTILE.replace("\ud83d", "?")]
    assert "<b>bold" not in page


def test_embedded_json_reads_back_and_holds_no_angle_bracket():
    value = {"a": HOSTILE, "b": [1, None, "\u2029"]}
    assert json.loads(embed(value)) == value
    assert not set("<>&\u2028\u2029") & set(embed(value))


def test_a_long_run_stays_small(tmp_path):
    fake_run.write(tmp_path, steps=400, snapshots=6, trees=16, group=8, seed=0)
    assert report(tmp_path).stat().st_size < 3_000_000


def test_an_advantage_on_observed_text_is_reported(tmp_path):
    fake_run.write(tmp_path, steps=6, snapshots=1, trees=1, group=4, seed=0)
    path = tmp_path / "rollouts" / "step_000006.json"
    snapshot = json.loads(read(path))
    snapshot["trees"][0]["nodes"][0]["tokens"][0]["advantage"] = 0.5
    path.write_text(json.dumps(snapshot))
    assert "1 tokens that the policy did not write carry an advantage" in read(report(tmp_path))


@pytest.mark.parametrize("exists", [True, False])
def test_the_command_line(tmp_path, exists):
    run_dir = tmp_path if exists else tmp_path / "nothing"
    done = subprocess.run([sys.executable, "-m", "rlsearch.report", str(run_dir)], capture_output=True, text=True)
    if exists:
        assert done.returncode == 0
        assert done.stdout.strip() == str(tmp_path / "report.html")
    else:
        assert done.returncode == 2
        assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr

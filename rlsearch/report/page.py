"""Puts the page together: one HTML file that asks nothing of the network and trusts no text that it shows."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from rlsearch.report import curves, result, trees
from rlsearch.report.read import Run, read_run

# The cover of the file, with its places filled by `document`. Only the script whose hash is named may run.
COVER = """<!doctype html>
<html lang=en>
<head>
<meta charset=utf-8>
<meta name=viewport content="width=device-width, initial-scale=1">
<meta http-equiv=Content-Security-Policy content="default-src 'none'; style-src 'unsafe-inline'; script-src '{hash}'">
<meta name=color-scheme content="light dark">
<title>{name} \u00b7 rlsearch</title>
<style>{style}</style>
</head>
<body>
<header>
<p class=brand>rlsearch <span>run report</span></p>
<h1>{name}</h1>
<p class=lead>{headline}</p>
<dl class=facts>{facts}</dl>
{notes}
<nav aria-label=Sections><a href=#result>Result</a><a href=#curves>Curves</a><a href=#rollouts>Rollouts</a>\
<a href=#config>Config</a></nav>
</header>
<main>
<section id=result><h2>Before and after</h2>{table}</section>
<section id=curves><h2>Learning curves</h2>{curves}</section>
<section id=rollouts><h2>Rollouts</h2>{rollouts}</section>
<section id=config><h2>Config</h2>{config}</section>
</main>
<div id=tip role=status aria-live=polite hidden></div>
<script type=application/json id=chart-data>{chart_data}</script>
<script type=application/json id=tree-data>{tree_data}</script>
<script>{script}</script>
</body>
</html>
"""

CURVES_NOTE = (
    "<p class=note>Thin: every step. Bold: centred mean over about a twenty-fifth of the steps on either side, "
    "geometric on log scales. "
    "Point at a chart, or focus it and use the arrow keys, to read the same step in all charts of its stage.</p>"
)

# The viewer fills this frame; without scripts it says so.
VIEWER = """<noscript><p class=empty>The rollout viewer needs JavaScript.</p></noscript>
<div id=viewer hidden>
<div class=controls>
<label>Step <select id=step></select></label>
<label class=grow>Question <select id=question></select></label>
<span class=pair><button type=button id=previous aria-label="Previous question">\u2190</button>\
<button type=button id=next aria-label="Next question">\u2192</button></span>
</div>
<div class=asked><p id=asked></p><p id=golden class=note></p></div>
<div id=tree class=tree></div>
<div class=under><div class=legend id=legend></div>
<p class=note>Boxes carry the mean advantage of their sampled tokens; dashed boxes are text that the policy did not \
write. Arrow keys walk the tree.</p></div>
<h3 id=path-title tabindex=-1></h3>
<div id=path class=path tabindex=0 role=region aria-label="Path from the prompt to the chosen node; left and right \
arrow keys read tokens"></div>
</div>"""


def report(run_dir: Path) -> Path:
    """Writes ``run_dir/report.html`` and returns its path; parts that the run has not written say so.

    Raises:
      InputError: no such directory, or a file in it that cannot be read (the file, line or field is named).
    """
    path = Path(run_dir) / "report.html"
    page = document(read_run(Path(run_dir)))
    unfinished = path.with_suffix(".html.part")
    # A token cut inside a character may decode to a lone surrogate, which UTF-8 cannot carry.
    unfinished.write_bytes(page.encode("utf-8", "replace"))
    os.replace(unfinished, path)
    return path


def document(run: Run) -> str:
    """The whole page as text."""
    charts, records = curves.render(run)
    script = "\n".join(_asset(name) for name in ("common.js", "curves.js", "trees.js", "config.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return COVER.format(
        hash=f"sha256-{digest}",
        name=escape(run.name),
        style=_asset("style.css"),
        headline=escape(result.headline(run)),
        facts=result.facts(run),
        notes="".join(f"<p class=warning>{escape(note)}</p>" for note in _notes(run)),
        table=result.table(run),
        curves=CURVES_NOTE + charts if charts else result.NOT_YET,
        rollouts=VIEWER if any(snapshot["trees"] for snapshot in run.snapshots) else result.NOT_YET,
        config=_config(run.config),
        chart_data=embed(records),
        tree_data=embed(trees.pack([snapshot for snapshot in run.snapshots if snapshot["trees"]])),
        script=script,
    )


def embed(value: Any) -> str:
    """JSON that is safe inside a script element: no character of it can close the element or open a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _notes(run: Run) -> list[str]:
    leaks = trees.leaking(run.snapshots)
    if not leaks:
        return list(run.notes)
    return [*run.notes, f"{leaks:,} tokens that the policy did not write carry an advantage; they should carry none."]


def _asset(name: str) -> str:
    return resources.files("rlsearch.report").joinpath("assets", name).read_text(encoding="utf-8")


def _config(config: dict[str, Any] | None) -> str:
    if config is None:
        return result.NOT_YET
    rows = list(_flat(config, ""))
    cells = "".join(f"<tr><th scope=row>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in rows)
    return (
        f"<details class=config><summary>{len(rows)} values</summary>"
        "<label class=find>Find <input type=search id=find autocomplete=off spellcheck=false></label>"
        f"<div class=scroll><table id=values>{cells}</table></div><p id=none class=empty hidden>Nothing matches.</p>"
        "</details>"
    )


def _flat(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else name)
    else:
        yield key, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

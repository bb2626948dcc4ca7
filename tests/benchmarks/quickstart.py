"""The quickstart's learning, time and memory: ``python -m tests.benchmarks.quickstart --seeds 0 1 2``.

Runs each seed from nothing in a directory of its own, one after the other, and compares the policy after the warm-up
with the policy after reinforcement learning on the same held-out questions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def run(config: str, seed: int, workdir: Path) -> tuple[dict[str, Any], float]:
    """The summary of one run and the minutes that the command took, start of the interpreter included."""
    begun = time.monotonic()
    options = [f"--config={config}", f"--config.seed={seed}", f"--workdir={workdir}"]
    subprocess.run([sys.executable, "-m", "rlsearch.train", *options], check=True, stdout=sys.stderr)
    return json.loads((workdir / "summary.json").read_text()), (time.monotonic() - begun) / 60


def figures(seed: int, summary: dict[str, Any], minutes: float) -> dict[str, float]:
    """The figures of one seed."""
    before, after = summary["before"], summary["after"]
    return {
        f"seed{seed}_minutes": minutes,
        f"seed{seed}_peak_gb": summary["peak_gb"],
        f"seed{seed}_em_before": before["exact_match"],
        f"seed{seed}_em_after": after["exact_match"],
        f"seed{seed}_em_after_3hop": after["by_hops"]["3"]["exact_match"],
        f"seed{seed}_searches_before": before["searches"],
        f"seed{seed}_searches_after": after["searches"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Learning, time and memory of the quickstart.")
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--config", default="configs/quickstart.py")
    options = parser.parse_args()
    measured, raw = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            summary, minutes = run(options.config, seed, Path(folder) / str(seed))
            measured |= figures(seed, summary, minutes)
            raw[str(seed)] = summary
    print(json.dumps({"name": "quickstart", "figures": measured, "raw": raw}))


if __name__ == "__main__":
    main()

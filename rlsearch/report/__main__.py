"""``python -m rlsearch.report RUN_DIR`` writes ``RUN_DIR/report.html``; run it at any time, also while training."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlsearch.errors import InputError
from rlsearch.report.page import report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rlsearch.report", description=__doc__)
    parser.add_argument("run_dir", type=Path, help="directory that a training run writes to")
    try:
        print(report(parser.parse_args().run_dir))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

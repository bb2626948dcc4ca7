"""Fatal-aware GRPO of OpenSearch-VL (arXiv 2605.05185).

Changes: tokens from a fatal turn on take no part, and what came before is never blamed.
Not covered: visual tools; three failures in a row: one search that finds nothing is fatal here.

Command: python -m rlsearch.train --config=configs/methods/opensearch_vl.py --workdir=runs/opensearch_vl
"""

from configs.methods._base import method

FAMILY = "objective"


def get_config(base="quickstart"):
    return method(
        base,
        "opensearch_vl",
        credit={"estimator": "fatal_aware", "scale": True},
        notes=(("fatal", "found_nothing"),),
    )

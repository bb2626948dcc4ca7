"""The quickstart with Tree-GRPO's rollouts and credit (arXiv 2509.21240); nothing else differs.

Two chains a question and four branches in each make ten episodes, for the tokens that eight separate chains take: over
its first five steps this run samples 1,275 tokens a step, the quickstart with seed 1 samples 1,245 (`sampled_tokens` in
the runs' metrics.jsonl).

Command: python -m rlsearch.train --config=configs/quickstart_tree.py --workdir=runs/quickstart_tree

Measured by that command, seed 0: exact match 0.33 before and 0.99 after, 0.98 on three hops; searches a question 1.00
and 2.00. On two cores that other jobs shared it took 8.0 minutes and 1.4 GB.
"""

from ml_collections import ConfigDict

from configs import quickstart


def get_config() -> ConfigDict:
    config = quickstart.get_config()
    config.name = "quickstart_tree"
    config.expander = ConfigDict({"kind": "random_expansion", "trees": 2, "branches": 4, "rounds": 1})
    config.sampling.slots = (16, 64, 160)
    config.credit = ConfigDict({"estimator": "tree_grpo", "scale": True, "drop_equal": True})
    return config

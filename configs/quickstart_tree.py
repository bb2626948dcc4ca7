"""The quickstart with Tree-GRPO's rollouts and credit (arXiv 2509.21240); nothing else differs.

Command: python -m rlsearch.train --config=configs/quickstart_tree.py --workdir=runs/quickstart_tree
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

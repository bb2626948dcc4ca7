"""Credit as tests read it: by node and the paths through it."""

from __future__ import annotations

from dataclasses import replace

from rlsearch.credit import estimate as estimates
from rlsearch.credit.algebra import Credit, Track
from rlsearch.credit.registry import CreditConfig
from rlsearch.tree import paths as layouts
from rlsearch.tree.forest import Nodes
from rlsearch.tree.paths import Paths


def by_node(credit: Credit, paths: Paths) -> Credit:
    """``advantage``, ``returns`` and ``weight`` as ``[N, K]``, a column for each path through the node."""

    def turned(track: Track | None) -> Track | None:
        return track and replace(track, node=layouts.below(track.node, paths))

    weight = layouts.below(credit.weight, paths)
    return replace(credit, advantage=turned(credit.advantage), returns=turned(credit.returns), weight=weight)


def estimate(nodes: Nodes, config: CreditConfig, **options) -> Credit:
    """``credit.estimate`` by node."""
    return by_node(estimates.estimate(nodes, config, **options), nodes.paths)

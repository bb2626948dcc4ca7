"""The plans that are tested and measured: a model that search agents are trained from, and chips to train it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ml_collections import ConfigDict

from configs.search_r1_7b import get_config


@dataclass(frozen=True)
class Plan:
    """configs/search_r1_7b.py with another model, or for other chips."""

    model: str
    topology: str
    changes: dict[str, Any]

    def arguments(self) -> list[str]:
        """Those of launch.plan."""
        changes = [f"--config.{key}={value}" for key, value in self.changes.items()]
        return ["--config=configs/search_r1_7b.py", f"--model={self.model}", f"--topology={self.topology}", *changes]

    def config(self) -> ConfigDict:
        """The config that these arguments make."""
        config = get_config()
        config.update_from_flattened_dict(self.changes)
        return config


PLANS = {
    "7b_v5p": Plan("qwen2.5-7b", "v5p:4x4x4", {}),
    "7b_v6e": Plan(
        "qwen2.5-7b", "v6e:16x16", {"mesh.fsdp": 64, "rl.batch.block_rows": 64, "rl.batch.blocks": 8}
    ),
    "3b_v5e": Plan(
        "qwen2.5-3b", "v5e:4x4",
        {"mesh.fsdp": 8, "mesh.model": 2, "rl.batch.block_rows": 8, "rl.logp_chunk": 1024},
    ),
    "30b_a3b_v5p": Plan("qwen3-30b-a3b", "v5p:4x4x4", {}),
}  # fmt: skip

TOO_LARGE = Plan(
    "smollm2-135m", "v5e:2x2",
    {
        "mesh.fsdp": 4, "mesh.model": 1, "rl.batch.block_rows": 16, "rl.batch.row_targets": 8192, "rl.remat": "none",
        "rl.attention": "blocked",
    },
)  # fmt: skip
"""Nothing recomputed, every logit kept: more than a chip of 16 GiB has."""

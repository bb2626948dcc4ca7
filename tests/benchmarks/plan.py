"""A plan's operations against the formula of the field: ``python -m tests.benchmarks.plan``.

For each planned model, the operations that ``launch.plan`` predicts for a training step, recomputation left out, over

    6 x parameters x tokens + attention

(Kaplan et al., 2020, arXiv:2001.08361, section 2.1), by the shapes of the parameters alone. Of parameters count those
that a token is multiplied with: of experts the share that it goes to, the embedding not, the head for targets only.
Attention is that of FlashAttention-2 (Dao, 2023, arXiv:2307.08691, section 4.1) on rows that are one path: forward two
products over half of the pairs of tokens, backward two and a half times that. The reference policy's forward pass, a
third of both, is part of a GRPO step and counted on both sides. Nothing is compiled, but topologies need libtpu.

Figure: ``flops_error``, the largest |predicted / formula - 1|.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys

import jax

from launch import plan
from rlsearch.models import decoder
from rlsearch.models.decoder import DecoderConfig
from tests.launch.plans import PLANS

BACKWARD, ATTENTION_BACKWARD = 2.0, 2.5  # times the forward pass


def multiplied(model: DecoderConfig) -> tuple[float, float]:
    """How many parameters multiply a token in the layers, and a target in the head."""
    shapes = jax.eval_shape(functools.partial(decoder.init, cfg=model), jax.random.key(0))
    layers = 0.0
    for path, leaf in jax.tree_util.tree_flatten_with_path((shapes["blocks"], shapes["final_norm"]))[0]:
        keys = [getattr(key, "key", None) for key in path]
        of_expert = "moe" in keys and "router" not in keys
        layers += leaf.size * (model.experts.per_token / model.experts.count if of_expert else 1)
    return layers, float(decoder.head(shapes, model).size)


def formula(model: DecoderConfig, *, rows: int, tokens: int, targets: int, passes: float) -> float:
    """Operations of rows that are one path each; ``passes`` are other forward passes than the trained one."""
    layers, head = multiplied(model)
    products = 2 * rows * (layers * tokens + head * targets)
    attention = 2 * 2 * model.n_layers * model.n_heads * model.head_dim * rows * tokens * tokens / 2
    return products * (1 + BACKWARD + passes) + attention * (1 + ATTENTION_BACKWARD + passes)


def main() -> None:
    parser = argparse.ArgumentParser(description="A plan's operations against the formula of the field.")
    parser.add_argument("--plans", nargs="*", default=list(PLANS), help="of tests/launch/plans.py")
    raw = {}
    for name in parser.parse_args().plans:
        this = PLANS[name]
        on = plan.prepare(this.config(), this.topology, model=this.model)
        shapes, passes = on.shapes, 1.0 if on.step.loss.reference else 0.0
        compiled, useful = on.training().work()
        sizes = {"rows": shapes.blocks * shapes.rows, "tokens": shapes.width, "targets": shapes.targets}
        expected = formula(on.step.model, **sizes, passes=passes)
        raw[name] = {
            **sizes, "predicted": useful.flops, "formula": expected, "error": useful.flops / expected - 1,
            "with_recomputation": compiled.flops,
        }  # fmt: skip
        print(name, f"{raw[name]['error']:+.4f}", file=sys.stderr, flush=True)
    figures = {"flops_error": max(abs(row["error"]) for row in raw.values())}
    print(json.dumps({"name": "plan", "figures": figures, "raw": raw}))


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    main()

"""Every choice of the objective's parts, with options at which it bites on random forests."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from rlsearch.models import value
from rlsearch.models.decoder import Params
from rlsearch.training.step import StepConfig
from rlsearch.tree.forest import NONE, Forest
from tests.models import small
from tests.training import steps

CLIP = {
    "ppo": {"kind": "ppo", "low": 0.2, "high": 0.3},
    "none": {"kind": "none"},
    "reinforce": {"kind": "reinforce"},
    "dual": {"kind": "dual", "low": 0.2, "high": 0.3, "bound": 1.4},
    "cispo": {"kind": "cispo", "low": 0.4, "high": 0.3},
    "aspo": {"kind": "aspo", "low": 0.2, "high": 0.3, "bound": 1.4},
    "elastic": {"kind": "elastic", "low": 0.1, "high": 0.15, "magnitude": 0.5, "variance": 2.0},
}
MISMATCH = {
    "truncated": {"kind": "truncated", "cap": 1.1},
    "masked": {"kind": "masked", "low": 0.8, "high": 1.2},
}
REDUCTION = {
    "token": {"kind": "token"},
    "sequence": {"kind": "sequence"},
    "constant": {"kind": "constant", "length": 5.0},
    "node": {"kind": "node"},
}
WEIGHT = {
    "uniform": {"kind": "uniform"},
    "critical": {"kind": "critical", "power": 2.0, "vocabulary": 200},
}
LEVELS = ("token", "node", "turn", "sequence", "sequence_token")


def kl(estimator: str, place: str, weights: str = "uniform") -> dict:
    return {"coefficient": 0.1, "estimator": estimator, "place": place, "weights": WEIGHT[weights]}


# name: (credit, what differs from steps.LOSS). Together they hold every choice; those in FAST are not marked slow.
GRPO = {"estimator": "grpo", "scale": True, "drop_equal": True}
TREE = {"estimator": "tree_grpo", "scale": True, "drop_equal": True}
KEPT = {"estimator": "grpo", "scale": False, "drop_equal": False}
LOSSES = {
    "one pass": (GRPO, {}),
    "gspo": (TREE, {"level": "sequence", "reduction": REDUCTION["sequence"], "kl": None}),
    "turns": (TREE, {"level": "turn", "clip": CLIP["dual"], "reduction": REDUCTION["node"],
                     "kl": kl("k1", "loss", "critical")}),
    "gspo-token": (KEPT, {"level": "sequence_token", "clip": CLIP["elastic"], "reduction": REDUCTION["constant"],
                          "kl": kl("k2", "loss")}),
    "cispo": (GRPO, {"clip": CLIP["cispo"], "mismatch": MISMATCH["truncated"], "kl": kl("k2", "reward")}),
    "nodes": (TREE, {"level": "node", "clip": CLIP["aspo"], "kl": kl("k1", "reward")}),
    "no clip": (TREE, {"clip": CLIP["none"], "mismatch": MISMATCH["masked"], "kl": kl("k3", "reward", "critical"),
                       "reduction": REDUCTION["sequence"]}),
    "reinforce": (KEPT, {"clip": CLIP["reinforce"], "kl": kl("k3", "loss")}),
    "aspo": (GRPO, {"clip": CLIP["aspo"], "reduction": REDUCTION["sequence"]}),
    "elastic turns": (TREE, {"level": "turn", "clip": CLIP["elastic"], "mismatch": MISMATCH["masked"]}),
}  # fmt: skip
TREE_RL = {"estimator": "tree_rl", "global_weight": 1.0, "local_weight": 1.0, "reweight": True, "shared_root": True,
           "drop_equal": True}  # fmt: skip
LOSSES |= {
    "bn-gspo": ({"estimator": "batch_normalised", "drop_equal": True}, LOSSES["gspo"][1]),
    "node credit": (TREE_RL, {}),
    "token credit": ({"estimator": "tempo", "scale": True, "whole_turn": False, "drop_equal": True}, {}),
    "node credit of sequences": (TREE_RL, {"level": "sequence", "clip": CLIP["cispo"]}),
}
FAST = {"one pass", "gspo", "turns", "cispo"}


def step(name: str) -> StepConfig:
    credit, loss = LOSSES[name]
    return steps.make(credit, loss)


@functools.cache
def critic(trunk: str = "own") -> Params:
    """A critic of the small model that says something of every state; on the policy's trunk it is a head alone."""
    if trunk != "own":
        return {"value": critic()["value"]}
    made = value.from_policy(small.parameters(small.config(), seed=3))
    rng = np.random.default_rng(3)
    head = {name: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype) for name, leaf in made["value"].items()}
    return {**made, "value": head}


def in_contexts(forest: Forest, seed: int) -> Forest:
    """Some neighbouring leaves of a question made contexts of one episode, which have its rewards."""
    rng, episode, rewards = np.random.default_rng(seed), forest.nodes.episode.copy(), forest.nodes.rewards.copy()
    leaves = np.flatnonzero(episode != NONE)
    for before, leaf in itertools.pairwise(leaves):
        if forest.nodes.question[before] == forest.nodes.question[leaf] and rng.random() < 0.4:
            episode[leaf], rewards[leaf] = episode[before], rewards[before]
    return replace(forest, nodes=replace(forest.nodes, episode=episode, rewards=rewards))


def drifted(forest: Forest) -> np.ndarray:
    """Log-probabilities of a policy that is not the sampler."""
    wave = 0.3 * np.sin(np.arange(len(forest.token_id)))
    return np.where(forest.sampled, np.minimum(forest.behavior_logp + wave, 0), 0).astype(np.float32)

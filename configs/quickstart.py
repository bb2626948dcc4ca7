"""From nothing to a policy that has learned to search, on two CPU cores.

A Qwen2 of 0.48 M parameters is warmed up on noisy demonstrations over 64 synthetic worlds, which search a random number
of times, and then learns with GRPO (arXiv 2402.03300) how often to search. Evaluation is greedy, over 384 questions of
one to three hops in four worlds never seen.

Command: python -m rlsearch.train --config=configs/quickstart.py --workdir=runs/quickstart  (or: make quickstart)

Measured on two cores of an AMD EPYC by: python -m tests.benchmarks.quickstart --seeds 0 1 2

    seed    exact match    after, three hops    searches a question    minutes    peak GB
            before after                        before   after
    0       0.33   0.98           0.96               1.00     1.99         6.8        1.2
    1       0.33   0.96           0.92               1.00     1.98         6.2        1.3
    2       0.33   0.87           0.80               1.00     1.98         6.6        1.2
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.name = "quickstart"
    config.seed = 0
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "sequence": 1, "model": 1})

    # The task: made-up worlds, new names in each; held-out worlds are never trained on.
    config.task = ConfigDict(
        {
            "kind": "worlds",
            "train_questions": 96,  # of each training world
            "heldout_questions": 96,  # of each held-out world
            "worlds": {
                "training": 64,
                "heldout": 4,
                "names": 1200,  # the pool that each world draws its 250 names from
                "persons": 150,
                "cities": 40,
                "countries": 20,
                "companies": 40,
                "hops": (1, 2, 3),
            },
        }
    )
    config.env = ConfigDict({"kind": "search_r1_v2", "max_turns": 4, "hits": 1, "style": "compact"})
    config.template = ConfigDict({"kind": "plain", "before": " Question: ", "after": ""})
    config.search = ConfigDict(
        {
            "encoder": {"kind": "light", "width": 512, "title_weight": 4.0, "pair_weight": 4.0},
            "index": {
                "kind": "scann",
                "brute_force_rows": 20000,
                "leaves": 100,
                "leaves_searched": 20,
                "block_dimensions": 2,
                "anisotropic_threshold": 0.2,
                "reorder": 100,
                "memory_gb": 1.0,
            },
        }
    )

    # The policy: a Qwen2 of half a million parameters, every name one token.
    config.policy = ConfigDict(
        {
            "kind": "scratch",
            "vocab_size": 1700,
            "vocab_corpora": 8,
            "vocab_questions": 1000,
            "previous_token": {"layer": 0, "head": 0, "strength": 6.0},
            "model": {
                "family": "qwen2",
                "d_model": 96,
                "n_layers": 3,
                "n_heads": 4,
                "n_kv_heads": 4,
                "head_dim": 24,
                "d_ff": 256,
                "experts": None,
                "activation": "silu",
                "rope_theta": 1000.0,
                "rope_scaling": None,
                "sliding": None,
                "norm_eps": 1e-6,
                "unit_offset": False,
                "post_norms": False,
                "qkv_bias": True,
                "qk_norm": False,
                "scale_embedding": False,
                "query_scalar": None,
                "attention_cap": None,
                "logit_cap": None,
                "tied": True,
                "max_positions": 256,
                "dtype": "float32",
                "param_dtype": "float32",
            },
        }
    )

    # Warm-up: noisy demonstrations teach how to ask, copy and answer, and not how often to ask.
    config.warmup = ConfigDict(
        {
            "traces": {"searches": (0.5, 0.27, 0.18, 0.05), "wrong_relation": 0.15},
            "steps": 2000,
            "rows": 8,
            "row_tokens": 128,
            "row_targets": 48,
            "log_every": 20,
            "checkpoint_every": 500,
            "keep": 1,
            "remat": "none",
            "attention": "dense",  # for rows this short
            "logp_chunk": 0,  # of so small a vocabulary all logits at once
            "optimizer": {
                "learning_rate": 3e-3,
                "warmup_steps": 100,
                "schedule": "cosine",
                "b1": 0.9,
                "b2": 0.95,
                "weight_decay": 0.01,
                "clip_norm": 1.0,
            },
        }
    )

    # Rollouts.
    config.expander = ConfigDict({"kind": "group", "size": 8})
    config.sampling = ConfigDict(
        {
            "slots": (16, 64, 128),
            "max_context": 160,
            "max_turn_tokens": 10,
            "max_observation_tokens": 40,
            "buckets": (1, 24, 48),
            "chunk": 10,
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "frozen_roles": (),
            "calls": {"at_once": 0, "batch": 128, "timeout": 60.0},
            "budget": None,
        }
    )

    # Reward, credit, loss.
    config.reward = ConfigDict({"terms": (("exact_match", 1.0),)})
    config.notes = ()
    config.scorer = None
    config.credit = ConfigDict({"estimator": "grpo", "scale": True, "drop_equal": True})
    config.loss = ConfigDict(
        {
            "level": "token",
            "clip": {"kind": "ppo", "low": 0.2, "high": 0.2},
            "mismatch": None,
            "reduction": {"kind": "token"},
            "kl": None,
            "entropy": 0.0,
            "terms": (),
        }
    )
    config.rl = ConfigDict(
        {
            "steps": 280,
            "merge_prefixes": None,
            "lora": None,
            "values": None,
            "critic_optimizer": None,
            "critic_trunk": None,
            "updates_per_batch": 1,
            "checkpoint_every": 20,
            "keep": 2,
            "evaluate_every": 0,
            "snapshot_every": 40,
            "snapshot_trees": 4,
            "remat": "none",
            "attention": "dense",  # for rows this short
            "logp_chunk": 0,  # of so small a vocabulary all logits at once
            "logp_gap": 1e-4,
            "batch": {
                "questions": 16,
                "row_tokens": 256,
                "row_targets": 96,
                "block_rows": 4,
                "blocks": 16,
                "nodes": 1024,
            },
            "optimizer": {
                "learning_rate": 6e-4,
                "warmup_steps": 10,
                "schedule": "cosine",
                "b1": 0.9,
                "b2": 0.95,
                "weight_decay": 0.0,
                "clip_norm": 1.0,
            },
        }
    )
    return config

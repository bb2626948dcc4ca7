"""Search-R1's GRPO (arXiv 2503.09516) of Qwen2.5-7B, for a slice of a TPU pod.

The settings are those of Search-R1's GRPO scripts: 512 questions a step, five episodes each, four searches of three
passages, learning rate 1e-6 with a warm-up over 28.5 % of the steps, KL to the start by k3 in the loss.

It needs, below the folder that RLSEARCH_DATA names:
  models/Qwen2.5-7B                  config.json, safetensors and tokenizer files as the Hugging Face hub has them
  nq_hotpotqa/questions.jsonl        one object a line with id, question, golden_answers and split (train or dev)
  wiki-18/corpus.jsonl               one passage a line with id and contents

What it needs of a slice, known before any of that is there:
  python -m launch.plan --config=configs/search_r1_7b.py --topology=v5p:4x4x4 --model=qwen2.5-7b
Another slice needs another mesh: --topology=v6e:16x16 --config.mesh.fsdp=64 --config.rl.batch.block_rows=64.

Command: python -m rlsearch.train --config=configs/search_r1_7b.py --workdir=runs/search_r1_7b
"""

import os

from ml_collections import ConfigDict

DATA = os.environ.get("RLSEARCH_DATA", "../shared/data")  # the folder that holds the files above


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.name = "search_r1_7b"
    config.seed = 0
    config.mesh = ConfigDict({"data": 1, "fsdp": 16, "sequence": 1, "model": 4})  # 64 chips; 4 key/value heads

    # The task: questions and passages from files.
    config.task = ConfigDict(
        {
            "kind": "files",
            "source": "nq_hotpotqa",
            "questions": f"{DATA}/nq_hotpotqa/questions.jsonl",
            "corpus": f"{DATA}/wiki-18/corpus.jsonl",
            "train_split": "train",
            "heldout_split": "dev",
            "heldout_questions": 512,
        }
    )
    config.env = ConfigDict({"kind": "search_r1_v2", "max_turns": 4, "hits": 3, "style": "search_r1"})
    config.template = ConfigDict({"kind": "search_r1_chat", "examples": ()})
    config.search = ConfigDict(
        {
            "encoder": {"kind": "minilm", "max_tokens": 256, "batch_tokens": 65536},
            "index": {
                "kind": "scann",
                "brute_force_rows": 20000,
                "leaves": 4600,  # near the root of 21 million passages
                "leaves_searched": 100,
                "block_dimensions": 2,
                "anisotropic_threshold": 0.2,
                "reorder": 200,
                "memory_gb": 64.0,
            },
        }
    )

    config.policy = ConfigDict({"kind": "huggingface", "path": f"{DATA}/models/Qwen2.5-7B", "dtype": "bfloat16"})
    config.warmup = None

    # Rollouts.
    config.expander = ConfigDict({"kind": "group", "size": 5})
    config.sampling = ConfigDict(
        {
            "slots": (64, 128, 256),
            "max_context": 4096,
            "max_turn_tokens": 500,
            "max_observation_tokens": 500,
            "buckets": (1, 128, 512, 1024),
            "chunk": 32,
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "frozen_roles": (),
            "calls": {"at_once": 8, "batch": 64, "timeout": 60.0},
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
            "kl": {"coefficient": 0.001, "estimator": "k3", "place": "loss", "weights": {"kind": "uniform"}},
            "entropy": 0.0,
            "terms": (),
        }
    )
    config.rl = ConfigDict(
        {
            "steps": 500,
            "merge_prefixes": None,
            "lora": None,
            "values": None,
            "critic_optimizer": None,
            "critic_trunk": None,
            "updates_per_batch": 1,
            "checkpoint_every": 20,
            "keep": 2,
            "evaluate_every": 50,
            "snapshot_every": 20,
            "snapshot_trees": 4,
            "remat": "full",
            "attention": "pallas",
            "logp_chunk": 0,  # all targets of a row at once: on several chips chunks cost transfers
            "logp_gap": 0.05,  # bfloat16 on both sides
            "batch": {
                "questions": 512,
                "row_tokens": 8192,
                "row_targets": 4096,
                "block_rows": 16,  # one for each group of chips that share a layer
                "blocks": 16,
                "nodes": 32768,
            },
            "optimizer": {
                "learning_rate": 1e-6,
                "warmup_steps": 142,
                "schedule": "constant",
                "b1": 0.9,
                "b2": 0.999,
                "weight_decay": 0.01,
                "clip_norm": 1.0,
            },
        }
    )
    return config

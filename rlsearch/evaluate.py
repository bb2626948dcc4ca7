"""Scores a policy on the held-out questions of a config: ``python -m rlsearch.evaluate --config=... --workdir=...``.

The policy is the one that the config starts from, or the exported model in ``--model``. Prints one record as JSON and
writes it with every episode to ``evaluation.json`` in the workdir, which also keeps vocabulary and indexes.

Episodes are kept in ``episodes.jsonl`` as they end: an evaluation that was stopped goes on when the same command is
given again, and gives what it would have given.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from rlsearch import command
from rlsearch.assemble import assemble
from rlsearch.envs.types import State
from rlsearch.evaluation import metrics
from rlsearch.evaluation.episodes import FILE
from rlsearch.evaluation.evaluate import resume
from rlsearch.rewards import answers
from rlsearch.sampling.rollouts import POLICY, START
from rlsearch.settings import check_sections
from rlsearch.training.workdir import Workdir

CONFIG = config_flags.DEFINE_config_file("config", None, "The config that names task, retriever and policy.")
WORKDIR = flags.DEFINE_string("workdir", None, "Keeps vocabulary and indexes; may be that of a training run.")
MODEL = flags.DEFINE_string("model", None, "An exported model to score in place of the policy that the config names.")


def evaluate(config: ConfigDict, path: Path, *, model: str | None) -> dict[str, Any]:
    """The evaluation record of a policy; its episodes are in ``path / "evaluation.json"``.

    Raises:
      InputError: something that the config names is missing, malformed or does not fit, there is no held-out
        question, or the episodes in ``path`` are of another evaluation.
    """
    check_sections(config)
    if model is not None:
        dtype = config.policy.model.dtype if "model" in config.policy else config.policy.dtype
        with config.unlocked():
            config.policy = ConfigDict({"kind": "huggingface", "path": model, "dtype": dtype})
    parts = assemble(config, path, writes=True)
    writers = {POLICY: parts.policy.params, START: parts.policy.params}
    states = resume(parts.engine, parts.scene, writers, parts.task, config=config, file=path / FILE)
    record = metrics.record(states, stage="evaluation", step=0, name=config.name)
    episodes = [_episode(state) for state in states]
    Workdir(path, writes=True).write_json("evaluation.json", {"record": record, "episodes": episodes})
    return record


def _episode(state: State) -> dict[str, Any]:
    match = answers.exact_match(state.answer, golds=state.question.answers)
    turns = [asdict(turn) | {"observation": turn.observation_text} for turn in state.turns]
    return {"question": asdict(state.question), "turns": turns, "answer": state.answer, "exact_match": match}


def main() -> None:
    print(json.dumps(evaluate(CONFIG.value, Path(WORKDIR.value), model=MODEL.value), indent=2))


if __name__ == "__main__":
    command.run(main)

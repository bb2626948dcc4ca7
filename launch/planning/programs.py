"""The programs of a run for a mesh of chips that are not there: the training step, the log-probability pass, decoding.

Arguments are shapes with a sharding, so that nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from launch.planning import flops
from launch.planning.compiled import Compiled, compiled
from launch.planning.flops import Work
from rlsearch.errors import InputError
from rlsearch.models import attention_blocked, decoder, lora, sharding, value
from rlsearch.models.decoder import DecoderConfig
from rlsearch.models.lora import LoraConfig
from rlsearch.models.sharding import MeshConfig
from rlsearch.sampling import draw, engine
from rlsearch.settings import Settings
from rlsearch.training import step as steps
from rlsearch.training.state import TrainState, make_optimizer
from rlsearch.training.step import StepConfig
from rlsearch.tree.forest import NONE, Rows, with_paths
from rlsearch.tree.pack import pad_nodes


@dataclass(frozen=True)
class Program:
    """A function with the shapes of its arguments, and as what its operations are counted.

    They are counted as if one chip did all: ``counted`` as it is compiled, ``useful`` with nothing computed twice but
    the scores of attention, which no backward pass has room to keep.
    """

    name: str
    function: Callable
    arguments: tuple
    counted: Callable
    useful: Callable
    donate: tuple[int, ...]
    turns: int  # of the loop whose number depends on data: pairs of blocks of a full row, or tokens of a turn
    parts: tuple[tuple[str, Any], ...]  # what the arguments hold, by name

    def held(self) -> dict[str, int]:
        """Bytes of each part on a chip."""
        return {name: bytes_per_chip(tree) for name, tree in self.parts}

    def work(self) -> tuple[Work, Work]:
        """Operations of all chips together, as compiled and useful."""
        plain = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.arguments)
        return tuple(flops.count(which, *plain, turns=self.turns) for which in (self.counted, self.useful))

    def compile(self) -> Compiled:
        """Compiles it for the chips that the arguments lie on."""
        return compiled(self.function, self.arguments, self.donate)


@dataclass(frozen=True)
class Shapes:
    """What a step holds, over all chips."""

    blocks: int
    rows: int  # of a block
    width: int
    targets: int
    nodes: int
    leaves: int
    depth: int
    fan: int
    questions: int
    terms: int


def make_mesh(config: MeshConfig, devices) -> Mesh:
    """The run's mesh over the devices of a topology."""
    return sharding.make_mesh(config, list(devices))


def training(step: StepConfig, read: Settings, shapes: Shapes, mesh: Mesh) -> Program:
    """One optimizer step on one batch of rollouts."""
    optimizer = make_optimizer(read.rl.optimizer, steps=read.rl.steps * read.rl.updates_per_batch)
    params = _placed(jax.eval_shape(lambda: decoder.init(jax.random.key(0), step.model)), mesh)
    critic_optimizer, critic = None, None
    if step.critic:
        critic_optimizer = make_optimizer(read.rl.critic_optimizer, steps=read.rl.steps * read.rl.updates_per_batch)
        critic = _state(
            _placed(jax.eval_shape(partial(value.start, trunk=step.critic_trunk), params), mesh), critic_optimizer, mesh
        )
    adapter = _adapter(step.model, step.lora, mesh)
    state = replace(_state(adapter or params, optimizer, mesh), critic=critic)
    reference = params if step.start else None
    old = _array((shapes.blocks, shapes.rows, shapes.targets), np.float32, mesh, P(None, *sharding.ROWS))
    arguments = (state, reference, _rows(shapes, mesh), _nodes(shapes, read, mesh), old)

    def build(config: StepConfig, mesh: Mesh) -> Callable:
        whole = steps.policy_step(config, optimizer, mesh, critic_optimizer=critic_optimizer)
        return lambda state, reference, rows, nodes, old: whole(state, reference, rows, shapes.blocks, nodes, old)

    return Program(
        "training step",
        build(step, mesh),
        arguments,
        build(step, _one_of(mesh)),
        build(_useful(step), _one_of(mesh)),
        (0,),
        _pairs(shapes),
        _parts(
            {
                "parameters": params,
                "adapter": adapter or None,
                "optimiser": state.opt_state,
                "reference": None if step.lora else reference,  # with an adapter it is what that is added to
                "critic": critic,
                "batch": arguments[2:],
            }
        ),
    )


def scoring(step: StepConfig, shapes: Shapes, mesh: Mesh) -> Program:
    """Log-probabilities of a batch's sampled tokens under given parameters."""
    params = _placed(jax.eval_shape(lambda: decoder.init(jax.random.key(0), step.model)), mesh)
    params |= _adapter(step.model, step.lora, mesh)

    def build(config: StepConfig, mesh: Mesh) -> Callable:
        return partial(_bound, steps.make_scores(config, mesh), shapes.blocks, config.lora)

    return Program(
        "log-probabilities",
        build(step, mesh),
        (params, _rows(shapes, mesh)),
        build(step, _one_of(mesh)),
        build(_useful(step), _one_of(mesh)),
        (),
        _pairs(shapes),
        _parts({"parameters": params}),
    )


def _one_of(mesh: Mesh) -> Mesh:
    return sharding.make_mesh(MeshConfig(1, 1, 1, 1), mesh.devices.flat[:1])


def _useful(step: StepConfig) -> StepConfig:
    return replace(step, remat=False, attention="blocked", logp_chunk=0)


def _pairs(shapes: Shapes) -> int:
    """Pairs of blocks that see each other in a row that is one path."""
    blocks = max(shapes.width // attention_blocked.BLOCK, 1)
    return blocks * (blocks + 1) // 2


def _bound(scores, blocks, config: LoraConfig | None, params, rows):
    return scores.__wrapped__(_whole(params, config), rows, blocks)


def _adapter(model: DecoderConfig, config: LoraConfig | None, mesh: Mesh) -> dict[str, Any]:
    """What is beside the parameters: with LoRA an adapter."""
    if config is None:
        return {}
    return _placed(jax.eval_shape(lambda: lora.init(jax.random.key(0), model, config)), mesh)


def _whole(params: dict[str, Any], config: LoraConfig | None) -> dict[str, Any]:
    return params if config is None else lora.attach(params, config)


def decoding(model: DecoderConfig, read: Settings, mesh: Mesh) -> Program:
    """The sampler with every slot in use: reads the widest bucket and writes a chunk."""
    sampling = read.sampling
    slots, bucket = sampling.slots[-1], max(sampling.buckets)
    model = replace(model, param_dtype=model.dtype)
    params = _placed(jax.eval_shape(lambda: decoder.init(jax.random.key(0), model)), mesh)
    params |= _adapter(model, read.rl.lora, mesh)
    try:
        lies = sharding.of_cache(model.n_kv_heads, mesh, slots=(slots,))
    except InputError as error:
        raise InputError(f"decoding: {error}") from error
    cache = jax.tree.map(
        lambda leaf: _array(leaf.shape, leaf.dtype, mesh, lies.spec),
        jax.eval_shape(lambda: decoder.empty_cache(model, slots=slots, capacity=sampling.max_context + bucket)),
    )
    plain = partial(_array, mesh=mesh, spec=P())
    ints, floats = plain((slots,), np.int32), plain((slots,), np.float32)
    call = engine._Call(
        slots=ints, length=ints, last=ints, state=ints, left=ints, step=ints, key=plain((slots, 2), np.uint32),
        draw=draw.Columns(floats, ints, floats, floats), menu=None,
    )  # fmt: skip
    marks = engine._Marks(
        plain((8, model.vocab_size), np.int32), plain((8,), bool), plain((model.vocab_size,), bool)
    )  # fmt: skip

    def function(params, cache, new, call, marks):
        params = engine._prepare.__wrapped__(_whole(params, read.rl.lora), cfg=model)
        cache = engine._read.__wrapped__(params, cache, call.slots, new, call.length, cfg=model, whole=True)
        return engine._write.__wrapped__(params, cache, call, marks, cfg=model, size=sampling.chunk, whole=True)

    return Program(
        "decoding",
        function,
        (params, cache, plain((slots, bucket), np.int32), call, marks),
        function,
        function,
        (1,),
        sampling.chunk,
        _parts({"parameters": params, "cache": cache}),
    )


def shapes(config: ConfigDict, read: Settings, mesh: Mesh) -> Shapes:
    """What a step of the config holds: the most rollouts that its questions make, in its blocks."""
    batch, leaves = read.rl.batch, read.expander.leaves
    return Shapes(
        blocks=batch.blocks, rows=batch.block_rows, width=batch.row_tokens, targets=batch.row_targets,
        nodes=batch.nodes, leaves=batch.questions * leaves, depth=2 * (config.env.max_turns + 1),
        fan=read.expander.leaves_of_tree, questions=batch.questions, terms=len(read.reward.names),
    )  # fmt: skip


def _parts(parts: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, tree) for name, tree in parts.items() if tree is not None)


def bytes_per_chip(tree: Any) -> int:
    """Bytes that each chip holds of arrays laid out over a mesh."""
    return sum(
        int(np.prod(leaf.sharding.shard_shape(leaf.shape), dtype=float)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _state(params: Any, optimizer, mesh: Mesh) -> TrainState:
    opt_state = _placed(jax.eval_shape(optimizer.init, params), mesh)
    return TrainState(params, opt_state, _array((), np.int32, mesh, P()))


def _placed(tree: Any, mesh: Mesh) -> Any:
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        tree,
        sharding.shard(tree, mesh),
    )


def _array(shape: tuple[int, ...], dtype: Any, mesh: Mesh, spec: P) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def _rows(shapes: Shapes, mesh: Mesh) -> Rows:
    place = P(None, *sharding.ROWS)
    tokens, targets = ((shapes.blocks, shapes.rows, size) for size in (shapes.width, shapes.targets))
    ids = [_array(size, np.int32, mesh, place) for size in (*[tokens] * 3, *[targets] * 4)]
    return Rows(*ids, _array(targets, np.float32, mesh, place))


def _nodes(shapes: Shapes, read: Settings, mesh: Mesh) -> Any:
    one = {name: np.array([NONE if name in ("parent", "episode") else 0], np.int32) for name in (
        "parent", "kind", "turn", "question", "episode", "role", "version", "tokens"
    )}  # fmt: skip
    columns = {
        **one,
        "end": np.ones(1, np.int32),
        "rewards": np.zeros((1, shapes.terms), np.float32),
        "notes": {name: np.zeros(1, np.float32) for name in read.notes.names},
    }
    room = {name: getattr(shapes, name) for name in ("leaves", "depth", "fan", "questions")}
    nodes = pad_nodes(with_paths(columns), shapes.nodes, **room)
    return jax.tree.map(lambda leaf: _array(leaf.shape, leaf.dtype, mesh, P()), nodes)


def topology_devices(name: str):
    """The devices of a TPU topology such as ``v5e:4x4``, from libtpu, without any TPU."""
    from jax.experimental import topologies

    return topologies.get_topology_desc(platform="tpu", topology_name=name).devices

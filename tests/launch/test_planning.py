"""What a plan counts: operations by hand, the text of a compiled program, and chips that are not there."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from launch.planning import chips, flops, hlo, programs
from rlsearch import settings
from rlsearch.errors import InputError
from rlsearch.models import attention_pallas, decoder
from rlsearch.models.decoder import DecoderConfig, Experts
from rlsearch.models.sharding import MeshConfig
from tests import small
from tests.house.files import ROOT
from tests.launch.plans import PLANS
from tests.models import small as small_model
from tests.training import steps
from tests.training.stages import KL

A, B = jax.ShapeDtypeStruct((4, 8), jnp.float32), jax.ShapeDtypeStruct((8, 16), jnp.float32)
STEP = {"credit": {"estimator": "grpo", "scale": True, "drop_equal": True}, "loss": {}}
PRODUCT = 2 * 4 * 8 * 16  # operations of A @ B


def test_a_product_by_hand():
    work = flops.count(jnp.matmul, A, B, turns=1)
    assert work == flops.Work(PRODUCT, 4 * (4 * 8 + 8 * 16 + 4 * 16))


def test_the_gradient_of_a_product_is_two_more():
    step = jax.value_and_grad(lambda a, b: jnp.square(a @ b).sum(), argnums=(0, 1))
    assert flops.count(step, A, B, turns=1).flops == 3 * PRODUCT


def test_loops_are_multiplied_out():
    def scanned(a, b):
        return jax.lax.scan(lambda total, _: (total + a @ b, None), jnp.zeros((4, 16)), length=7)[0]

    def nested(a, b):
        return jax.lax.scan(lambda total, _: (total + jax.jit(scanned)(a, b), None), jnp.zeros((4, 16)), length=3)[0]

    def open_ended(a, b, limit):
        return jax.lax.fori_loop(0, limit, lambda _, total: total + a @ b, jnp.zeros((4, 16)))

    assert flops.count(scanned, A, B, turns=1).flops == 7 * PRODUCT
    assert flops.count(nested, A, B, turns=1).flops == 21 * PRODUCT
    assert flops.count(open_ended, A, B, jax.ShapeDtypeStruct((), jnp.int32), turns=5).flops == 5 * PRODUCT


def test_of_branches_the_dearer_counts_and_recomputation_is_seen():
    def either(a, b):
        return jax.lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: jnp.zeros((4, 16)))

    def again(a, b):
        inner = jax.checkpoint(lambda a: jnp.square(a @ b).sum())
        return jax.grad(inner)(a)

    assert flops.count(either, A, B, turns=1).flops == PRODUCT
    assert flops.count(again, A, B, turns=1).flops == 3 * PRODUCT  # forward, forward again, backward by a


def test_each_row_meets_the_matrix_of_its_own_expert():
    """Six rows and three experts: as many operations as one matrix of each size would make, forward and back."""
    rows, experts = jax.ShapeDtypeStruct((6, 4), jnp.float32), jax.ShapeDtypeStruct((3, 4, 5), jnp.float32)
    sizes = jax.ShapeDtypeStruct((3,), jnp.int32)
    assert flops.count(jax.lax.ragged_dot, rows, experts, sizes, turns=1).flops == 2 * 6 * 4 * 5
    step = jax.value_and_grad(lambda a, b, n: jnp.square(jax.lax.ragged_dot(a, b, n)).sum(), argnums=(0, 1))
    assert flops.count(step, rows, experts, sizes, turns=1).flops == 3 * 2 * 6 * 4 * 5


def test_a_kernel_counts_as_often_as_its_grid_has_steps():
    """Two rows of two blocks, three of whose four pairs are in the grid: two products each forward, seven backward."""
    q, k = (jax.ShapeDtypeStruct((2, 512, heads, 64), jnp.float32) for heads in (4, 2))
    ends = jax.ShapeDtypeStruct((2, 512), jnp.int32)
    attend = functools.partial(attention_pallas.attend, block=256, interpret=False)
    product = 2 * 256 * 256 * 64 * 4 * 2 * 3  # operations of one for all heads, rows and pairs
    assert flops.count(attend, q, k, k, ends, turns=1).flops == 2 * product
    step = jax.grad(lambda q, k, v, ends: attend(q, k, v, ends).sum(), argnums=(0, 1, 2))
    # jax.grad needs the sum's own derivative, by delta: the products of outputs and their slopes, number by number.
    delta = 2 * 2 * 4 * 512 * 64
    assert flops.count(step, q, k, k, ends, turns=1).flops == 9 * product + delta


TEXT = """HloModule jit_f

FileNames
1 "/somewhere/rlsearch/models/decoder.py"
2 "/somewhere/jax/core.py"

FunctionNames
1 "apply"

FileLocations
1 {file_name_id=1 function_name_id=1 line=42 end_line=42 column=1 end_column=2}
2 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

%fused (p: f32[1000]) -> f32[1000] {
  %p = f32[1000]{0} parameter(0)
  ROOT %big.1 = f32[1000000]{0} negate(%p), metadata={op_name="x" stack_frame_id=2}
}

%body (arg: (s32[], bf16[2,8])) -> (s32[], bf16[2,8]) {
  %arg = (s32[], bf16[2,8]{1,0}) parameter(0)
  %gather.1 = bf16[2,8]{1,0} all-gather(%x), replica_groups={{0,1},{2,3}}, metadata={op_name="y" stack_frame_id=2}
  ROOT %out = (s32[], bf16[2,8]{1,0}) tuple(%i, %gather.1)
}

%condition (arg: (s32[], bf16[2,8])) -> pred[] {
  %arg = (s32[], bf16[2,8]{1,0}) parameter(0)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

%twice (arg: (s32[], bf16[2,8])) -> (s32[], bf16[2,8]) {
  %arg = (s32[], bf16[2,8]{1,0}) parameter(0)
  %at = s32[] get-tuple-element(%arg), index=0
  %two = s32[] constant(2)
  %next = s32[] add(%at, %two)
  %sent = (bf16[2,8]{1,0}, bf16[2,8]{1,0}, u32[]) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}
  %got = bf16[2,8]{1,0} collective-permute-done(%sent)
  ROOT %out = (s32[], bf16[2,8]{1,0}) tuple(%next, %got)
}

%below_five (arg: (s32[], bf16[2,8])) -> pred[] {
  %arg = (s32[], bf16[2,8]{1,0}) parameter(0)
  %at = s32[] get-tuple-element(%arg), index=0
  %five = s32[] constant(5)
  ROOT %less = pred[] compare(%at, %five), direction=LT
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %loop = (s32[], bf16[2,8]{1,0}) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"28"}}
  %open = (s32[], bf16[2,8]{1,0}) while(%t), condition=%condition, body=%body
  %counted = (s32[], bf16[2,8]{1,0}) while(%t), condition=%below_five, body=%twice
  %part = f32[2]{0} reduce-scatter(%a), replica_groups=mesh['x'=2,'y'=4] {'y'}, to_apply=%add
  %wide = f32[1000]{0} fusion(%a), kind=kLoop, calls=%fused, metadata={op_name="z" stack_frame_id=1}
  ROOT %sum = f32[4]{0} all-reduce(%a), replica_groups=[2,4]<=[8], to_apply=%add
}
"""  # noqa: E501


def test_collectives_are_counted_as_often_as_their_loops_turn():
    """28 turns of the loop that says so and 3 of the one that does not; 0, 2 and 4 are below five.

    Bytes by hand: of 32 that two chips gather, a chip sends 16; it sends all 32 of a permutation; of 16 that four sum,
    twice three quarters; and three times the 8 that each of four is left with.
    """
    found = hlo.read(TEXT, turns=3, largest=2)
    assert found.collectives == {
        "all-gather": (31, 31 * 16),
        "all-reduce": (1, 24),
        "collective-permute": (3, 3 * 32),
        "reduce-scatter": (1, 24),
    }


def test_the_largest_temporaries_say_where_they_come_from():
    """What is inside a fusion takes no memory of its own; a line of another package is that of its caller here."""
    wide, gathered = hlo.read(TEXT, turns=3, largest=2).temporaries
    assert (wide.bytes, wide.shape, wide.source) == (4000, "f32[1000]", "rlsearch/models/decoder.py:42")
    assert (gathered.bytes, gathered.source) == (32, "rlsearch/models/decoder.py:42")


@pytest.mark.parametrize(
    ("shape", "size"),
    [("f32[]", 4), ("bf16[2,3]{1,0:T(8,128)}", 12), ("(s32[5]{0}, pred[4], u8[3])", 27), ("s64[2]", 16)],
)
def test_bytes_of_shapes(shape, size):
    assert hlo.size(shape) == size


def test_chips_have_their_public_figures_and_others_are_refused():
    assert chips.chip("v5p:4x4x4").flops == 459e12
    with pytest.raises(InputError, match=r"generation 'v5x' is not known; did you mean"):
        chips.chip("v5x:4x4")
    with pytest.raises(InputError, match=r"give the sides behind a colon, such as v5e:4x4"):
        chips.chip("v5e")


def test_slots_that_do_not_divide_over_the_chips_are_refused():
    """Laid on every chip instead, they would be planned as what no run does."""
    read = settings.read(small.config(**{"sampling.slots": (12,)}))
    mesh = programs.make_mesh(MeshConfig(data=8, fsdp=1, sequence=1, model=1), jax.devices())
    with pytest.raises(InputError, match=r"decoding: .*slots .12,. .* over 8 devices .* divides over them"):
        programs.decoding(small_model.config(), read, mesh)


def test_a_step_holds_what_the_config_says():
    config = small.config()
    mesh = programs.make_mesh(MeshConfig(data=8, fsdp=1, sequence=1, model=1), jax.devices())
    shapes = programs.shapes(config, settings.read(config), mesh)
    assert (shapes.blocks, shapes.rows, shapes.width, shapes.targets) == (4, 8, 128, 48)
    assert (shapes.questions, shapes.leaves, shapes.fan) == (4, 16, 4)


needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="compiling for a TPU needs libtpu: jax[tpu]"
)


def finished(*command: str) -> tuple[list[str], dict]:
    """The lines that a process of its own printed, and its most memory in GiB by name."""
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return out.splitlines(), {"gib": usage.ru_maxrss / 2**20}


@pytest.mark.slow
@needs_libtpu
def test_a_plan_of_the_quickstart_on_sixteen_chips():
    arguments = [
        "--config=configs/quickstart.py", "--topology=v5e:4x4", "--config.rl.batch.block_rows=16",
        "--config.mesh.data=16", "--config.rl.attention=blocked", "--config.warmup.rows=16",
    ]  # fmt: skip
    said, _ = finished("-m", "launch.plan", *arguments, "--json")
    plan = json.loads(said[-1])
    assert plan["fits"]
    assert plan["chips"] == 16
    assert [program["name"] for program in plan["programs"]] == ["training step", "log-probabilities", "decoding"]
    training = plan["programs"][0]
    assert training["memory"]["optimiser"] == pytest.approx(2 * training["memory"]["parameters"], rel=0.01)
    assert training["collectives"]["all-reduce"]["count"] > 0
    assert 0 < training["useful_flops"] <= training["flops"]


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize("name", list(PLANS))
def test_plans_of_released_models(name):
    """They fit, hold what the parameters say by hand, and are made in 16 GB of this machine's memory."""
    said, used = finished("-m", "launch.plan", *PLANS[name].arguments(), "--json")
    plan = json.loads(said[-1])
    training, _, decoding = plan["programs"]
    assert plan["fits"] and plan["advice"] == []
    count = decoder.parameter_count(
        jax.eval_shape(functools.partial(decoder.init, cfg=DecoderConfig(**typed(plan["model"]))), jax.random.key(0))
    )
    shares = plan["chips"] // plan["mesh"]["data"]
    for part, size in (("parameters", 4), ("optimiser", 8), ("reference", 4)):
        assert training["memory"][part] == pytest.approx(size * count / shares, rel=0.01)
    assert decoding["memory"]["parameters"] == pytest.approx(2 * count / shares, rel=0.01)
    assert training["seconds"]["network"] < 10 * training["seconds"]["compute"]  # loops are counted as they turn
    assert 0.1 < training["utilisation"] <= 1
    assert used["gib"] < 16


def typed(model: dict) -> dict:
    """The fields of a DecoderConfig from JSON."""
    return {**model, "experts": model["experts"] and Experts(**model["experts"])}


REFUSED = """
import json
from launch import plan
from tests.launch.plans import TOO_LARGE as case
on = plan.prepare(case.config(), case.topology, model=case.model)
found = plan.measure(on.training(), on.chip, on.mesh.size)
print(json.dumps([found, plan.advice(on, [found])]))
"""


@pytest.mark.slow
@needs_libtpu
def test_a_step_that_does_not_fit_says_what_to_change():
    """The compiler refuses it; named are the settings that would help, and three temporaries with their lines."""
    said, _ = finished("-c", REFUSED)
    found, advice = json.loads(said[-1])
    assert not found["fits"]
    assert found["memory"]["temporaries"] > 16 * 2**30
    assert advice[0].startswith("training step: ") and advice[0].endswith(" of 16.00 GiB")
    assert "config.rl.remat=full" in advice[2] and "config.rl.logp_chunk=256" in advice[3]
    assert len(advice[4:]) == 3 and all(" GiB " in line and " at " in line for line in advice[4:])
    assert any("at rlsearch/" in line for line in advice[4:])


def test_with_an_adapter_a_plan_keeps_one_copy_and_the_optimiser_of_the_adapter_alone():
    """Traced, not compiled: every program takes what it is given."""
    changes = {"loss.kl": KL, "rl.lora": ConfigDict({"rank": 2, "alpha": 4.0, "matrices": ("q", "down")})}
    config = small.config(**changes)
    read, model = settings.read(config), small_model.config()
    mesh = programs.make_mesh(MeshConfig(data=2, fsdp=2, sequence=1, model=2), jax.devices())
    step = dataclasses.replace(steps.make(**STEP), model=model, lora=read.rl.lora, weights=read.reward.weights)
    shapes = programs.shapes(config, read, mesh)
    made = [programs.training(step, read, shapes, mesh), programs.scoring(step, shapes, mesh)]
    for program in [*made, programs.decoding(model, read, mesh)]:
        jax.eval_shape(program.function, *program.arguments)
    held = made[0].held()
    assert "reference" not in held
    layers, width, rank = 2, 16, 2
    numbers = (width * rank / 2 + rank * 4 * 6 / 2) + (24 * rank / 2 + rank * width / 2)  # of a chip, fsdp and model 2
    assert held["adapter"] == 4 * layers * numbers
    assert held["optimiser"] == 2 * held["adapter"] + 2 * 4  # and two counts

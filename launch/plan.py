"""What a run needs before it is paid for: ``python -m launch.plan --config=... --topology=v5p:4x4x4``.

Compiles the training step, the log-probability pass and the decoding step of a config for real TPU chips on any CPU
machine, and prints for each chip: what memory holds, operations, bytes, collectives with their volume, and the time
that the roofline allows; says whether it fits, and what to change where it does not. ``--model`` plans the config for
another model of ``configs/models``; any value can be changed as for training (``--config.mesh.fsdp=16``). ``--json``
prints one JSON object instead. Needs libtpu (``pip install 'jax[tpu]'``).
"""

from __future__ import annotations

import os

# What a TPU machine's metadata would say; without these libtpu asks for it over the network, and waits.
os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_WORKER_HOSTNAMES": "localhost", "JAX_PLATFORMS": "cpu"}
os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # no chip is opened, so that several plans may be made at once
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-16")

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import jax
from absl import flags
from jax.sharding import Mesh
from ml_collections import ConfigDict, config_flags

from launch.planning import chips, hlo, models, programs
from launch.planning.programs import Program, Shapes
from rlsearch import command, settings
from rlsearch.errors import InputError
from rlsearch.models import decoder as decoders
from rlsearch.settings import Settings
from rlsearch.training.step import StepConfig

CONFIG = config_flags.DEFINE_config_file("config", None, "The run's config.", lock_config=True)
TOPOLOGY = flags.DEFINE_string("topology", None, "Chips to plan for, such as v5e:4x4, v5p:4x4x4 or v6e:16x16.")
MODEL = flags.DEFINE_string("model", None, "A model of configs/models in the place of the config's own.")
JSON = flags.DEFINE_bool("json", False, "Print one JSON object.")

LARGEST = 3  # temporaries that are named


@dataclass(frozen=True)
class Prepared:
    """A config read for a topology: all that its programs are made of."""

    chip: chips.Chip
    read: Settings
    mesh: Mesh
    shapes: Shapes
    step: StepConfig

    def training(self) -> Program:
        """The training step."""
        return programs.training(self.step, self.read, self.shapes, self.mesh)


def prepare(config: ConfigDict, topology: str, *, model: str | None) -> Prepared:
    """Reads a config for a topology; compiles nothing.

    Raises:
      InputError: a topology or model that is not known, or rows, heads or widths that do not divide over the mesh.
    """
    chip, read = chips.chip(topology), settings.read(config)
    os.environ["TPU_ACCELERATOR_TYPE"] = chip.accelerator
    decoder = models.of_config(config, model)
    devices = programs.topology_devices(topology)
    mesh = programs.make_mesh(read.mesh, devices)
    settings.check_shares(read, mesh, processes=1)
    shapes = programs.shapes(config, read, mesh)
    step = StepConfig(
        model=decoder, credit=read.credit, loss=read.loss, weights=read.reward.weights,
        temperature=read.sampling.temperature, remat=read.rl.remat, attention=_attention(read, shapes),
        logp_chunk=read.rl.logp_chunk, critic_trunk=read.rl.critic_trunk, lora=read.rl.lora,
    )  # fmt: skip
    return Prepared(chip, read, mesh, shapes, step)


def plan(config: ConfigDict, topology: str, *, model: str | None) -> dict[str, Any]:
    """Compiles a config's programs for a topology; returns what the report says, as JSON has it.

    Raises:
      InputError: as ``prepare`` does.
    """
    on = prepare(config, topology, model=model)
    chip, mesh, decoder = on.chip, on.mesh, on.step.model
    found = [
        measure(program, chip, mesh.size)
        for program in (
            on.training(),
            programs.scoring(on.step, on.shapes, mesh),
            programs.decoding(decoder, on.read, mesh),
        )
    ]
    fits = all(program["fits"] for program in found)
    return {
        "topology": topology, "chips": mesh.size, "mesh": dict(mesh.shape), "model": asdict(decoder),
        "shapes": asdict(on.shapes), "chip": asdict(chip), "programs": found, "fits": fits,
        "advice": [] if fits else advice(on, found),
    }  # fmt: skip


def _attention(read: Settings, shapes: Shapes) -> str:
    """The config's own, unless its rows are longer than a whole mask has room for."""
    if read.rl.attention == "dense" and shapes.width > 2048:
        raise InputError(
            f"config.rl.attention is 'dense' and rows have {shapes.width} tokens: the mask alone takes"
            f" {shapes.width**2 / 2**20:.0f} MB a row; set config.rl.attention to 'blocked'"
        )
    return read.rl.attention


def measure(program: Program, chip: chips.Chip, count: int) -> dict[str, Any]:
    """Compiles a program; returns what one of ``count`` chips holds, does and moves."""
    begun = time.monotonic()
    compiled = program.compile()
    text = hlo.read(compiled.text, turns=program.turns, largest=LARGEST)
    arguments = programs.bytes_per_chip(program.arguments)
    total = arguments + compiled.temporaries + compiled.code + compiled.others
    work, useful = program.work()
    moved = sum(volume for _, volume in text.collectives.values())
    bounds = {
        "compute": work.flops / count / chip.flops,
        "memory": work.bytes / count / chip.bandwidth,
        "network": moved / chip.network,
    }
    seconds = max(bounds.values())
    return {
        "name": program.name,
        "memory": {
            **program.held(),
            "temporaries": compiled.temporaries,
            "code": compiled.code,
            "total": total,
        },
        "fits": not compiled.refused and total <= chip.hbm,
        "flops": work.flops / count,
        "useful_flops": useful.flops / count,
        "bytes": work.bytes / count,
        "collectives": {kind: {"count": n, "bytes": volume} for kind, (n, volume) in text.collectives.items()},
        "largest_temporaries": [asdict(one) for one in text.temporaries],
        "seconds": bounds,
        "step_seconds": seconds,
        "utilisation": useful.flops / count / chip.flops / seconds if seconds else 0.0,
        "compile_seconds": time.monotonic() - begun,
    }  # fmt: skip


def advice(on: Prepared, found: list[dict[str, Any]]) -> list[str]:
    """What to change where a program does not fit, and its largest temporaries by the line that asked for them."""
    chip, read, mesh, said = on.chip, on.read, on.mesh, []
    for program in found:
        memory = program["memory"]
        if program["fits"]:
            continue
        held = sum(size for name, size in memory.items() if name not in ("temporaries", "code", "total"))
        said.append(f"{program['name']}: {gib(memory['total'])} of {gib(chip.hbm)} GiB")
        if held > memory["temporaries"]:
            said.append(f"  what is kept takes {gib(held)} GiB: raise config.mesh.fsdp (now {mesh.shape['fsdp']})")
        else:
            said.append(f"  temporaries take {gib(memory['temporaries'])} GiB: fewer rows a block for each device")
            if decoders.check_remat(read.rl.remat) == "none":
                said.append("  config.rl.remat=full recomputes each layer in the backward pass")
            if not read.rl.logp_chunk:
                said.append("  config.rl.logp_chunk=256 keeps the logits of 256 targets of a row at a time")
        said += [f"  {gib(t['bytes'])} GiB {t['operation']} {t['shape']} at {t['source']}"
                 for t in program["largest_temporaries"]]  # fmt: skip
    return said


def gib(size: float) -> str:
    """Bytes as a number of 2**30."""
    return f"{size / 2**30:.2f}"


def lines(found: dict[str, Any]) -> list[str]:
    """The report."""
    mesh = " x ".join(f"{axis} {size}" for axis, size in found["mesh"].items())
    model = found["model"]
    out = [
        f"{found['chips']} chips of {found['topology']}: {mesh}",
        f"model: {model['family']}, {model['n_layers']} layers of width {model['d_model']}, {model['dtype']}",
    ]
    for program in found["programs"]:
        memory = program["memory"]
        out += ["", f"{program['name']}, each chip"]
        parts = ", ".join(f"{name} {gib(size)}" for name, size in memory.items() if name != "total")
        out.append(f"  memory      {gib(memory['total'])} of {gib(found['chip']['hbm'])} GiB ({parts})")
        done, useful = program["flops"] / 1e12, program["useful_flops"] / 1e12
        out.append(f"  operations  {done:.2f} TFLOP, without rematerialisation {useful:.2f}")
        out.append(f"  products    read and write {program['bytes'] / 1e9:.2f} GB")
        for kind, moved in program["collectives"].items():
            out.append(f"  {kind:18} {moved['count']:7} times, {moved['bytes'] / 1e9:.3f} GB")
        bounds = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in program["seconds"].items())
        step, share = program["step_seconds"] * 1e3, program["utilisation"]
        out.append(f"  roofline    {step:.1f} ms (of {bounds}), utilisation {share:.0%}")
    return [*out, "", "fits" if found["fits"] else "does not fit", *found["advice"]]


def main() -> None:
    found = plan(CONFIG.value, TOPOLOGY.value, model=MODEL.value)
    print(json.dumps(found) if JSON.value else "\n".join(lines(found)))


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    command.run(main, required=("config", "topology"))

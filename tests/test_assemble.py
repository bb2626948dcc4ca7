"""What does not fit is refused before a rollout finds out; a checkpoint goes where the mesh says."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import jax
import numpy as np

from rlsearch.assemble import make_policy
from rlsearch.interop import stacking
from rlsearch.interop.export import export_model
from rlsearch.models import sharding
from tests import small
from tests.interop import small as hub


def test_a_checkpoint_goes_to_the_mesh_with_two_layers_in_host_memory_at_most(tmp_path, monkeypatch):
    """Host arrays are what tracemalloc counts; arrays of devices are not. Ten layers, so that all would be five times
    as much as is allowed."""
    monkeypatch.setattr(stacking, "PIECE", 1 << 14)
    cfg = hub.config("llama", tied=False, dtype="float32", d_model=128, d_ff=512, n_layers=10)
    cfg = replace(cfg, vocab_size=-(-cfg.vocab_size // 4) * 4)
    params = hub.parameters(cfg)
    export_model(tmp_path / "model", params, cfg, hub.tokenizer())
    config = small.config(policy={"kind": "huggingface", "path": str(tmp_path / "model"), "dtype": "float32"})
    mesh = sharding.make_mesh(sharding.MeshConfig(1, 2, 1, 2), jax.devices()[:4])
    make_policy(config, None, tmp_path, writes=True, mesh=mesh)  # compiles; what it leaves in memory is not counted
    tracemalloc.start()
    try:
        policy = make_policy(config, None, tmp_path, writes=True, mesh=mesh)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 2 * sum(leaf.nbytes for leaf in jax.tree.leaves(params["blocks"])) // cfg.n_layers
    places = sharding.shard(policy.params, mesh)
    for ours, theirs, place in zip(*map(jax.tree.leaves, (params, policy.params, places)), strict=True):
        assert theirs.sharding == place
        np.testing.assert_array_equal(ours, theirs)


def test_without_a_mesh_a_checkpoint_goes_to_the_first_device_as_float32(tmp_path):
    cfg = hub.config("qwen2", tied=True, dtype="bfloat16")
    export_model(tmp_path / "model", hub.parameters(cfg), cfg, hub.tokenizer())
    config = small.config(policy={"kind": "huggingface", "path": str(tmp_path / "model"), "dtype": "bfloat16"})
    policy = make_policy(config, None, tmp_path, writes=True)
    assert policy.model == replace(cfg, param_dtype="float32")
    for ours, theirs in zip(*map(jax.tree.leaves, (hub.parameters(cfg), policy.params)), strict=True):
        assert theirs.devices() == {jax.devices()[0]} and theirs.dtype == np.float32
        np.testing.assert_array_equal(ours.astype(np.float32), theirs)

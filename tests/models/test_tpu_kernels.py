"""The attention kernels compile for every TPU that runs are planned for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.house.files import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:4x4", "v5p:2x2x4", "v6e:4x4"])
def test_forward_and_backward_compile(topology):
    """Three kernels each: forward, the gradient by queries, the gradient by keys and values."""
    if importlib.util.find_spec("libtpu") is None:
        pytest.skip("no libtpu here; pip install 'jax[tpu]' brings what compiles for TPUs on any machine")
    # In a process of its own: libtpu locks itself and reads its environment once.
    command = [sys.executable, "-m", "tests.models.tpu_kernels", topology]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    kernels = [line.split()[-1] for line in done.stdout.splitlines()]
    assert kernels == ["3"] * 4, done.stdout

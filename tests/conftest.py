"""What every test runs under: eight CPU devices, no silent broadcasting over ranks, examples that repeat.

Eight devices are set in jax's configuration and not in the environment, so that a process which a test starts has one,
as a user's has.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import pytest

MAPPINGS = Path("/proc/self/maps")

if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    jax.config.update("jax_num_cpu_devices", 8)

# The same examples every time, or new ones with HYPOTHESIS_PROFILE=explore. No deadlines: no test measures time.
hypothesis.settings.register_profile("repeat", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


MOST_MAPPINGS = 20_000  # of memory, of the 65,530 that Linux gives a process; a compiled program takes several
_tests = itertools.count(1)


@pytest.fixture(autouse=True)
def programs_are_let_go():
    """A process that keeps every program that it ever compiled is aborted once it has too many mappings of memory."""
    yield
    if next(_tests) % 20 == 0 and MAPPINGS.exists() and MAPPINGS.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def rank_promotion_raises():
    """An array that broadcasts because its rank is lower than meant is an error in every test."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real question sets and corpora: RLSEARCH_DATA, or ../shared/data beside the clone; skips where there are none."""
    default = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("RLSEARCH_DATA", default))
    if not path.is_dir():
        pytest.skip(f"no question sets at {path}; set RLSEARCH_DATA to a folder that has hotpotqa/ and others")
    return path

"""A training config as a whole: read before anything is built, and what has to fit what."""

from __future__ import annotations

import pytest
from ml_collections import ConfigDict

from rlsearch import settings
from rlsearch.errors import InputError
from tests import small


def test_the_small_config_is_read_whole():
    read = settings.read(small.config())
    assert (read.rl.steps, read.expander.leaves, read.warmup.traces.wrong_relation) == (5, 4, 0.15)
    assert settings.read(small.config(warmup=None)).warmup is None


def without(path: str) -> ConfigDict:
    """The small config without one key."""
    config = section = small.config()
    *parts, key = path.split(".")
    for part in parts:
        section = section[part]
    del section[key]
    return config


@pytest.mark.parametrize(
    "path",
    ["rl.optimizer.learning_rate", "rl.steps", "sampling.temperature", "credit.estimator", "warmup.traces.searches"],
)
def test_what_training_needs_is_missed_before_anything_is_built(path):
    """A run must not find out after its warm-up that there is no learning rate."""
    with pytest.raises(InputError, match=rf"config\.{path.rpartition('.')[0]}: missing {path.rpartition('.')[2]}"):
        settings.read(without(path))


def test_sections_that_are_unknown_or_missing():
    config = small.config()
    config.rewards = ConfigDict()
    with pytest.raises(InputError, match=r"config\.rewards: unknown section; did you mean 'reward'\?"):
        settings.read(config)
    with pytest.raises(InputError, match="config: missing loss"):
        settings.read(without("loss"))


@pytest.mark.parametrize("cut", [{"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_log_probabilities_of_a_cut_distribution_are_not_taken_for_the_policys(cut):
    cut = {f"sampling.{name}": value for name, value in cut.items()}
    with pytest.raises(InputError, match=r"never draws some tokens .* set config\.loss\.mismatch"):
        settings.read(small.config(**cut))
    corrected = ConfigDict({"kind": "truncated", "cap": 2.0})
    assert settings.read(small.config(**cut, **{"loss.mismatch": corrected})).sampling.draw.truncated


def test_a_warm_up_without_worlds_is_refused():
    config = small.config()
    config.task = ConfigDict({"kind": "files"})
    with pytest.raises(InputError, match=r"config\.warmup demonstrates on worlds; set it to None"):
        settings.read(config)


@pytest.mark.parametrize("schedule", ["cosin", "linear"])
def test_an_unknown_schedule_is_refused(schedule):
    with pytest.raises(InputError, match=f"optimizer schedule '{schedule}': unknown"):
        settings.read(small.config(**{"rl.optimizer.schedule": schedule}))


def test_shares_must_come_out_even():
    mesh = small.one_device()
    settings.check_shares(settings.read(small.config()), mesh, processes=2)
    with pytest.raises(InputError, match=r"config\.rl\.batch\.questions is 4, which does not divide among 3"):
        settings.check_shares(settings.read(small.config()), mesh, processes=3)
    eight = small.sharding.make_mesh(small.MeshConfig(data=4, fsdp=2, sequence=1, model=1))
    for key in ("rl.batch.block_rows", "warmup.rows"):
        with pytest.raises(InputError, match=rf"config\.{key} is 12, which does not divide over the 8 devices"):
            settings.check_shares(settings.read(small.config(**{key: 12})), eight, processes=1)


@pytest.mark.parametrize("key", ["rl.batch.row_tokens", "rl.batch.row_targets", "warmup.row_tokens"])
def test_the_tokens_of_a_row_must_come_out_even_over_the_sequence_axis(key):
    """Rows that did not would be padded by XLA, or laid whole on every device, without a word."""
    four = small.sharding.make_mesh(small.MeshConfig(data=2, fsdp=1, sequence=4, model=1))
    even = {"rl.batch.row_tokens": 256, "rl.batch.row_targets": 64, "warmup.row_tokens": 256}
    settings.check_shares(settings.read(small.config(**even)), four, processes=1)
    with pytest.raises(InputError, match=rf"config\.{key} is 254, which does not divide over the 4"):
        settings.check_shares(settings.read(small.config(**{**even, key: 254})), four, processes=1)


@pytest.mark.parametrize("tolerance", [-1e-3, float("nan")])
def test_a_tolerance_that_nothing_is_within_is_refused(tolerance):
    with pytest.raises(InputError, match=r"config\.rl\.merge_prefixes is (-0\.001|nan)"):
        settings.read(small.config(**{"rl.merge_prefixes": tolerance}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"credit": {"estimator": "turn_centred", "coefficient": 1.0, "over": "group", "scale": True}},
            "over='group' is neither",
        ),
        ({"terms": {"kind": "sft", "coefficient": 1.0, "note": "expert", "above": 0.0}}, "note 'expert' is read and"),
    ],
)
def test_what_credit_or_a_term_refuses_is_refused_before_anything_is_built(changes, message):
    """Not when the step is compiled, after the warm-up."""
    config = small.config()
    config.notes = (("step_reward", "valid"),)
    if "credit" in changes:
        config.credit = ConfigDict({"drop_equal": True, **changes["credit"]})
    else:
        config.loss.terms = (ConfigDict(changes["terms"]),)
    with pytest.raises(InputError, match=message):
        settings.read(config)

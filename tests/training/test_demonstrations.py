"""Demonstrations as rows: repeatable, of one shape, and only what the demonstrator wrote is a target."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from rlsearch.envs import observations
from rlsearch.envs.traces import draw_trace
from rlsearch.errors import InputError
from rlsearch.tree.build import build
from rlsearch.tree.check import check
from rlsearch.tree.forest import Kind
from tests import small


@pytest.fixture(scope="module")
def run():
    return small.assembled()


@pytest.fixture(scope="module")
def demonstrator(run):
    return small.demonstrator(run.config, run.parts)


def equal(one, other) -> bool:
    return all(jax.tree.leaves(jax.tree.map(lambda a, b: a.shape == b.shape and bool((a == b).all()), one, other)))


def test_rows_are_a_function_of_seed_process_and_step(demonstrator, run):
    assert equal(demonstrator.rows(5), small.demonstrator(run.config, run.parts).rows(5))
    assert not equal(demonstrator.rows(5), demonstrator.rows(6))
    for change in ({"seed": 1}, {"process": 1}):
        assert not equal(demonstrator.rows(5), small.demonstrator(run.config, run.parts, **change).rows(5))


@pytest.mark.parametrize("targets", [24, 48, 100])
def test_every_step_has_its_number_of_rows_well_filled(run, targets):
    """Also where targets run out before tokens do; another shape would compile the step anew."""
    demonstrator = small.demonstrator(run.config, run.parts, row_targets=targets)
    for step in range(20):
        rows = demonstrator.rows(step)
        assert rows.token_id.shape == (8, 128)
        assert rows.target.shape == (8, targets)
        tokens = (rows.token_end != np.arange(1, 129)).sum() / (8 * 128)
        assert max(tokens, (rows.target >= 0).mean()) > 0.6


@pytest.mark.parametrize("limit", [{"row_targets": 12}, {"row_tokens": 60}])
def test_a_row_too_short_for_a_trace_is_refused(run, limit):
    demonstrator = small.demonstrator(run.config, run.parts, **limit)
    with pytest.raises(InputError, match=r"a demonstration of \d+ tokens, \d+ of them written, does not fit a row"):
        [demonstrator.rows(step) for step in range(100)]


def test_a_trace_becomes_a_chain_whose_targets_are_what_was_written(demonstrator, run):
    rng, decode = np.random.default_rng(0), run.parts.policy.tokenizer.decode
    for _ in range(20):
        trace = draw_trace(demonstrator.traces, demonstrator.worlds[0], rng, hops=2)
        forest = build([(0, root := demonstrator.branch(trace, episode=0))], terms=0)
        check(forest)
        written = [text for text, _ in trace.turns]
        nodes = [root]
        while nodes[-1].children:
            nodes += nodes[-1].children
        assert [decode(node.tokens) for node in nodes if node.logps is not None] == written
        assert nodes[0].kind is Kind.PROMPT and trace.question.text in decode(nodes[0].tokens)
        read = [node.tokens for node in nodes if node.kind is Kind.OBSERVATION]
        assert read == [observed(run, hits) for _, hits in trace.turns if hits is not None]


def observed(run, hits):
    pieces = observations.render(hits, style="compact")
    return observations.encode(pieces, tokenizer=run.parts.policy.tokenizer, limit=40).ids


def test_demonstrations_read_as_rollouts_do(demonstrator, run):
    """The prompt, turns and observations of a demonstration are token for token what a rollout would hold."""
    tokenizer, env = run.parts.policy.tokenizer, run.parts.task.env
    trace = draw_trace(demonstrator.traces, demonstrator.worlds[1], np.random.default_rng(1), hops=3)
    root, state = demonstrator.branch(trace, episode=0), env.start(trace.question)
    assert root.tokens == run.parts.scene.template.prompt_ids(tokenizer, trace.question.text)
    for text, hits in trace.turns:
        state = env.act(state, tokenizer.decode(tokenizer.encode_control(text)))
        assert state.turns[-1].kind == ("answer" if hits is None else "search")
        state = state if hits is None else env.observe(state, (hits,))
    assert state.answer == trace.turns[-1][0].removeprefix("<answer>").removesuffix("</answer>").strip()

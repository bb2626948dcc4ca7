"""Equal prefixes become one node; every episode keeps its tokens, its rewards and its credit."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

from rlsearch.config import Call
from rlsearch.credit import registry
from rlsearch.credit.algebra import Credit
from rlsearch.losses.reduce import REDUCTIONS
from rlsearch.training.step import make_scores
from rlsearch.tree.build import Branch, build, chain, group
from rlsearch.tree.check import check
from rlsearch.tree.forest import NONE, Forest, Kind, Nodes, leaves
from rlsearch.tree.merge import merge_prefixes
from rlsearch.tree.pack import pack, pad_nodes
from tests.credit.by_node import estimate
from tests.models import small
from tests.training import steps
from tests.tree.random_forests import TERMS, ancestors, apart, trees, visible

TOLERANCE = 1e-6


NOTES = ("gain",)


def merged(branches: list[tuple[int, Branch]], *, tolerance: float = TOLERANCE) -> Forest:
    forest = build(merge_prefixes(branches, tolerance=tolerance), terms=TERMS, notes=NOTES)
    check(forest)
    return forest


def unmerged(branches: list[tuple[int, Branch]]) -> Forest:
    return build(branches, terms=TERMS, notes=NOTES)


def alike_chains(seed: int, *, rows: int, vocabulary: int) -> list[tuple[int, Branch]]:
    """Chains of a few questions that begin alike: turns over a small vocabulary whose log-probabilities hardly differ,
    some empty, some noted, some identical to the last token. The second reward tells the episodes apart.
    """
    rng, found = np.random.default_rng(seed), []

    def part(kind: Kind, turn: int) -> Branch:
        tokens = rng.integers(vocabulary, size=rng.integers(0, 4)).tolist()
        notes = {"gain": float(rng.integers(1, 3))} if rng.random() < 0.2 else {}
        logps = None if kind == Kind.OBSERVATION else rng.choice([-1.0, -1.0, -1.0, -2.0], size=len(tokens)).tolist()
        return Branch(kind, turn, tokens, logps, notes=notes)

    for _ in range(rows):
        if found and rng.random() < 0.3:
            found.append(found[rng.integers(len(found))])
            continue
        parts, turns = [Branch(Kind.PROMPT, 0, [1, 2])], rng.integers(0, 3)
        for turn in range(turns):
            parts += [part(Kind.QUERY, turn), part(Kind.OBSERVATION, turn)]
        found.append((int(rng.integers(2)), [*parts, part(Kind(rng.choice([Kind.QUERY, Kind.ANSWER])), turns)]))
    rewards = [[float(rng.choice([0.0, 0.25, 1.0])), float(row)] for row in range(rows)]
    return [(q, chain(parts, episode=i, rewards=rewards[i])) for i, (q, parts) in enumerate(found)]


ALIKE = st.builds(alike_chains, st.integers(0, 2**32 - 1), rows=st.integers(1, 7), vocabulary=st.integers(1, 3))


def tokens_of(forest: Forest, leaf: int) -> np.ndarray:
    return np.flatnonzero(np.isin(forest.token_node, ancestors(forest.nodes.parent, leaf)))


def episodes(forest: Forest) -> list[tuple]:
    """What each episode is: its question and rewards, the sum of its notes, and every token with its kind, turn,
    log-probability, whether it was sampled and the note that stands at it as the last of its node; sorted.
    """
    found, nodes = [], forest.nodes
    for leaf in np.flatnonzero(leaves(nodes)):
        own = tokens_of(forest, leaf)
        node, note = forest.token_node[own], nodes.notes["gain"]
        noted = np.where(np.append(node[1:] != node[:-1], [True] * (len(node) > 0)), note[node], 0.0)
        columns = (
            forest.token_id[own], nodes.kind[node], nodes.turn[node], forest.sampled[own], forest.behavior_logp[own],
            noted,
        )  # fmt: skip
        total = float(note[ancestors(nodes.parent, leaf)].sum())
        tokens = tuple(zip(*(column.tolist() for column in columns), strict=True))
        found.append((int(nodes.question[leaf]), *nodes.rewards[leaf].tolist(), total, tokens))
    return sorted(found)


@settings(max_examples=150)
@given(ALIKE)
def test_every_episode_keeps_its_tokens_rewards_and_notes(branches):
    before, after = unmerged(branches), merged(branches)
    assert episodes(after) == episodes(before)
    assert len(after.token_id) <= len(before.token_id)
    assert sorted(after.nodes.episode[leaves(after.nodes)]) == list(range(len(branches)))


def first_tokens(forest: Forest, node: int) -> tuple | None:
    """What makes the first token of a node the same as another's; None where it has none, or has a note of its own."""
    own = np.flatnonzero(forest.token_node == node)
    nodes = forest.nodes
    if not len(own) or (len(own) == 1 and nodes.notes["gain"][node]):
        return None
    columns = (forest.token_id, forest.sampled, forest.behavior_logp)
    return int(nodes.kind[node]), int(nodes.turn[node]), *(column[own[0]].item() for column in columns)


@settings(max_examples=150)
@given(ALIKE)
def test_no_two_branches_begin_with_the_same_token(branches):
    forest = merged(branches)
    seen = set()
    for node in range(len(forest.nodes.end)):
        label = first_tokens(forest, node)
        here = (int(forest.nodes.question[node]), int(forest.nodes.parent[node]), label)
        assert label is None or here not in seen
        seen.add(here)


@settings(max_examples=60)
@given(ALIKE, st.sampled_from([0.0, TOLERANCE, 1.5]))
def test_merging_again_changes_nothing(branches, tolerance):
    once = merge_prefixes(branches, tolerance=tolerance)
    assert merge_prefixes(once, tolerance=tolerance) == once


@given(trees(contexts=True))
def test_merging_what_trees_were_taken_apart_into_gives_no_more_tokens(branches):
    """Contexts included: an episode that ends in several leaves keeps as many."""
    whole, again = unmerged(branches), merged(apart(branches))
    assert len(again.token_id) <= len(whole.token_id)
    assert texts_by_number(again) == texts_by_number(whole)


def texts_by_number(forest: Forest) -> list[list[list[int]]]:
    ends = np.flatnonzero(leaves(forest.nodes))
    found = [[] for _ in ends]
    for leaf in ends:
        found[forest.nodes.episode[leaf]].append(forest.token_id[tokens_of(forest, leaf)].tolist())
    return sorted(sorted(texts) for texts in found if texts)


@settings(max_examples=60)
@given(ALIKE)
def test_a_group_under_one_prompt_is_merged_like_its_chains(branches):
    """Branches of a tree that begin alike are as good as chains of their own."""
    roots: dict[int, list[Branch]] = {}
    for question, root in branches:
        roots.setdefault(question, []).extend(root.children)
    groups = [(question, group(Branch(Kind.PROMPT, 0, [1, 2]), below)) for question, below in roots.items()]
    assert merge_prefixes(groups, tolerance=TOLERANCE) == merge_prefixes(branches, tolerance=TOLERANCE)


@functools.partial(jax.jit, static_argnames=("config", "reduction"))
def _estimate(nodes: Nodes, config: registry.CreditConfig, reduction: str) -> Credit:
    return estimate(nodes, config, weights=(1.0, 0.0), reduction=Call(reduction, REDUCTIONS[reduction], ()))


def credited(forest: Forest, config: registry.CreditConfig, reduction: str) -> dict[float, np.ndarray]:
    """Advantage and weight of every sampled token of each episode, by the reward that tells episodes apart."""
    nodes = pad_nodes(forest.nodes, 64, leaves=8, depth=16, fan=8)
    credit, found = jax.tree.map(np.asarray, _estimate(nodes, config, reduction)), {}
    for row, leaf in enumerate(np.flatnonzero(leaves(forest.nodes))):
        node = forest.token_node[tokens_of(forest, leaf)]
        node = node[forest.nodes.tokens[node] > 0]
        column = row - nodes.paths.first[node]
        found[float(nodes.rewards[leaf, 1])] = np.stack(
            [credit.advantage.node[node, column], credit.weight[node, column]]
        )
    return found


OUTCOMES = {
    "grpo": {"scale": True}, "rloo": {}, "reinforce_baseline": {}, "batch_normalised": {},
    "quantile_whitened": {"magnitude": 0.5, "shrinkage": 0.25},
}  # fmt: skip


@pytest.mark.parametrize("name", OUTCOMES)
@settings(max_examples=15)
@given(ALIKE, st.booleans(), st.sampled_from(["token", "sequence"]))
def test_outcomes_are_worth_the_same(name, branches, drop_equal, reduction):
    """Estimators that look at outcomes only give every token of every episode what they gave it before."""
    config = registry.read(ConfigDict({"estimator": name, "drop_equal": drop_equal, **OUTCOMES[name]}))
    before, after = (credited(forest, config, reduction) for forest in (unmerged(branches), merged(branches)))
    assert before.keys() == after.keys()
    for episode, column in before.items():
        np.testing.assert_allclose(after[episode], column, atol=1e-6)


def test_loss_and_gradient_are_the_same():
    """By the public step, a sequence's ratio and a token's KL included, with a quarter of the tokens fewer."""
    branches = alike_chains(5, rows=7, vocabulary=3)
    before, after = unmerged(branches), merged(branches)
    assert len(after.token_id) < 0.75 * len(before.token_id)
    params, reference = small.parameters(small.config()), small.parameters(small.config(), 1)
    found = [
        steps.loss_and_gradient(
            params, reference, forest, steps.config("grpo", "sequence"), steps.mesh(), width=64, targets=32, block=2
        )
        for forest in (after, before)
    ]
    steps.assert_equal(*found)


def answer(*tokens: int, episode: int, logp: float = -1.0, kind: Kind = Kind.ANSWER, **rest) -> Branch:
    logps = [logp] * len(tokens)
    return Branch(kind, 0, list(tokens), logps, episode=episode, rewards=[float(episode), 0.0], **rest)


def below_prompt(*answers: Branch) -> list[tuple[int, Branch]]:
    """A chain for each answer, all with the prompt 0."""
    return [(0, Branch(Kind.PROMPT, 0, [0], children=[one])) for one in answers]


def shape(forest: Forest) -> list[tuple[int, list[int], int]]:
    """Parent, tokens and episode of each node."""
    nodes = forest.nodes
    return [
        (int(nodes.parent[node]), forest.token_id[forest.token_node == node].tolist(), int(nodes.episode[node]))
        for node in range(len(nodes.end))
    ]


A, B, C, D = 1, 2, 3, 4


def test_a_group_becomes_the_tree_that_it_samples():
    """B048: sequences ABC, ABD and AB after a prompt. A and B are one node, C and D its branches, and the third episode
    ends between them in a leaf without tokens. Of the tokens after A, 2 + 2 + 1 transitions count, one for each episode
    that makes it, and none beyond the end of a branch.
    """
    forest = merged(below_prompt(answer(A, B, C, episode=0), answer(A, B, D, episode=1), answer(A, B, episode=2)))
    assert shape(forest) == [
        (NONE, [0], NONE), (0, [A, B], NONE), (1, [C], 0), (1, [D], 1), (1, [], 2),
    ]  # fmt: skip
    rows = pack(forest, width=8, targets=8, multiple=1).rows
    use = rows.target[0] != NONE
    moves = list(zip(rows.token_id[0, rows.target_prev[0, use]], rows.target_id[0, use], strict=True))
    assert moves == [(0, A), (A, B), (B, C), (B, D)]
    through = forest.nodes.paths.count[rows.target_node[0, use]]
    assert through[1:].sum() == 2 + 2 + 1


def test_packed_log_probabilities_are_those_of_each_episode_alone():
    """B048, by the model: the tree's targets against three forward passes of one sequence each."""
    sequences = [(A, B, C), (A, B, D), (A, B)]
    branches = below_prompt(*[answer(*tokens, episode=i) for i, tokens in enumerate(sequences)])
    config = steps.config("grpo", "token")
    score = make_scores(config)
    params = small.parameters(small.config())

    def logps(forest: Forest) -> dict[tuple[int, ...], float]:
        """The log-probability of each sampled token, by the tokens of its path."""
        (rows, used, _), by_path = steps.batch(forest, width=16, targets=8, block=1), {}
        found = np.asarray(score(params, rows, used))
        for block in range(used):
            seen = visible(rows.token_end[block])[0]
            for slot in np.flatnonzero(rows.target[block, 0] != NONE):
                path = rows.token_id[block, 0, seen[rows.target[block, 0, slot]]]
                by_path[tuple(path.tolist())] = found[block, 0, slot]
        return by_path

    packed, alone = logps(merged(branches)), logps(unmerged(branches))
    assert packed.keys() == alone.keys() == {(0, A), (0, A, B), (0, A, B, C), (0, A, B, D)}
    for path, logp in alone.items():
        assert packed[path] == pytest.approx(logp, abs=1e-5)


def test_episodes_that_are_the_same_stay_two():
    forest = merged(below_prompt(answer(A, B, episode=0), answer(A, B, episode=1)))
    assert shape(forest) == [(NONE, [0], NONE), (0, [A, B], NONE), (1, [], 0), (1, [], 1)]
    assert forest.nodes.rewards[2:, 0].tolist() == [0.0, 1.0]
    assert forest.nodes.paths.count.tolist() == [2, 2, 1, 1]


def test_the_prompt_alone_may_be_an_episode():
    prompt = Branch(Kind.PROMPT, 0, [0], episode=7, rewards=[1.0, 0.0])
    forest = merged([(0, prompt), *below_prompt(answer(A, episode=3))])
    assert shape(forest) == [(NONE, [0], NONE), (0, [], 0), (0, [A], 1)]


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        (answer(A, B, D, episode=1), [A, B]),
        (answer(A, B, D, episode=1, logp=-1.0 - 1e-7), [A, B]),
        (answer(A, B, D, episode=1, logp=-1.1), []),
        (answer(A, B, D, episode=1, logp=float("nan")), []),
        (answer(A, B, D, episode=1, kind=Kind.INVALID), []),
        (answer(A, B, D, episode=1, version=4), []),
        (answer(A, B, D, episode=1, role=1), []),
        (replace(answer(A, B, D, episode=1), logps=None), []),
        (replace(answer(A, B, D, episode=1), turn=1), []),
        (answer(D, B, A, episode=1), []),
    ],
)
def test_which_tokens_are_the_same(other, shared):
    """Ids, sampled or not, kind, turn, role, version, and log-probabilities up to the tolerance."""
    trees = merge_prefixes(below_prompt(answer(A, B, C, episode=0), other), tolerance=TOLERANCE)
    assert len(trees) == 1
    below = trees[0][1].children
    assert ([branch.tokens for branch in below] == [shared]) == bool(shared)
    assert len(below) == (1 if shared else 2)


def test_questions_and_prompts_are_kept_apart():
    """Contexts whose prompts differ are trees of their own, as are equal prompts of two questions."""
    chains = below_prompt(answer(A, episode=0), answer(B, episode=1))
    other = Branch(Kind.PROMPT, 0, [9], children=[answer(A, episode=0)])
    found = merge_prefixes([chains[0], (5, chains[1][1]), (0, other), chains[1]], tolerance=TOLERANCE)
    assert [(question, root.tokens, len(root.children)) for question, root in found] == [
        (0, [0], 2), (0, [9], 1), (5, [0], 1),
    ]  # fmt: skip


def test_a_prompt_that_is_no_continuation_of_the_last_makes_a_second_branch():
    """B062: a template that drops earlier thoughts gives a second context that shares the prompt alone; the episode
    ends in two leaves and has one number.
    """
    first = Branch(Kind.QUERY, 0, [A, B], [-1.0, -1.0], episode=0, rewards=[1.0, 0.0])
    second = chain(
        [Branch(Kind.OBSERVATION, 0, [B]), Branch(Kind.ANSWER, 1, [C], [-1.0])], episode=0, rewards=[1.0, 0.0]
    )
    forest = merged(below_prompt(first, second))
    assert shape(forest) == [(NONE, [0], NONE), (0, [A, B], 0), (0, [B], NONE), (2, [C], 0)]


def test_notes_stand_at_tokens_that_are_the_same_only_where_they_are():
    """Turns A B, each noted, then an observation. Equal notes: one node. Other notes: B is two tokens. At a leaf, B is
    two tokens in either case, since what a leaf says belongs to its episode.
    """

    def episode(number: int, gain: float, ends: bool) -> Branch:
        below = [] if ends else [Branch(Kind.OBSERVATION, 0, [D], episode=number, rewards=[0.0, 0.0])]
        end = {"episode": number, "rewards": [0.0, 0.0]} if ends else {}
        return Branch(Kind.QUERY, 0, [A, B], [-1.0, -1.0], below, notes={"gain": gain}, **end)

    equal = merged(below_prompt(episode(0, 2.0, False), episode(1, 2.0, False)))
    assert shape(equal) == [
        (NONE, [0], NONE), (0, [A, B], NONE), (1, [D], NONE), (2, [], 0), (2, [], 1),
    ]  # fmt: skip
    assert equal.nodes.notes["gain"].tolist() == [0, 2, 0, 0, 0]
    for gain, ends in ((3.0, False), (3.0, True), (2.0, True)):
        forest = merged(below_prompt(episode(0, 2.0, ends), episode(1, gain, ends)))
        assert forest.nodes.notes["gain"][1] == 0
        assert sorted(forest.nodes.notes["gain"][2:][forest.nodes.notes["gain"][2:] > 0]) == [2.0, gain]
        assert [tokens for _, tokens, _ in shape(forest)][:3] == [[0], [A], [B]]


def test_arguments_are_not_changed():
    branches = alike_chains(1, rows=6, vocabulary=1)
    before = copy.deepcopy(branches)
    merge_prefixes(branches, tolerance=TOLERANCE)
    assert branches == before

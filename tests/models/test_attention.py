"""The mask and the grouped heads against loops, and blindness between siblings to the last bit."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlsearch.errors import InputError
from rlsearch.models import attention, attention_blocked, decoder
from rlsearch.tree.pack import pack
from tests.models import small
from tests.tree.random_forests import ancestors, random_forest

WIDTH = 31


def softmax(x: np.ndarray) -> np.ndarray:
    x = np.exp(x - x.max())
    return x / x.sum()


def test_the_mask_by_its_definition():
    token_end = np.array([[4, 2, 4, 4, 6, 6, 7]])
    seen = np.asarray(attention.visible(token_end))[0]
    assert seen.tolist() == [[k <= q < token_end[0, k] for k in range(7)] for q in range(7)]


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (4, 2), (6, 3), (4, 1)])
def test_grouped_queries_against_a_loop(heads, key_heads):
    rng = np.random.default_rng(heads * key_heads)
    q = rng.normal(size=(2, 3, heads, 4)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, key_heads, 5, 4)).astype(np.float32)
    mask = rng.random((2, 3, 5)) < 0.6
    mask[:, :, 0] = True
    out = np.asarray(attention.masked_attention(q, k, v, mask))
    for b, t, h in np.ndindex(2, 3, heads):
        group, keys = h // (heads // key_heads), np.flatnonzero(mask[b, t])
        weights = softmax(np.array([q[b, t, h] @ k[b, group, c] / 2.0 for c in keys]))
        np.testing.assert_allclose(out[b, t, h], weights @ v[b, group, keys], atol=1e-5)


@settings(max_examples=8)
@given(st.integers(0, 2**32 - 1))
@example(1)
def test_gradients_flow_along_the_path_and_nowhere_else(seed):
    """Siblings, other trees, padding and the future are exactly zero; every ancestor is not."""
    forest = random_forest(seed, trees=2, depth=3, branching=2, longest=2)
    sizes = np.bincount(np.cumsum(forest.prev < 0) - 1)
    keep = int(np.cumsum(sizes)[np.cumsum(sizes) <= WIDTH][-1]) if sizes[0] <= WIDTH else 0
    if not keep:
        return
    columns = {name: getattr(forest, name)[:keep] for name in ("position", "token_end")}
    padding = np.arange(keep, WIDTH)
    position = np.concatenate([columns["position"], 0 * padding])
    token_end = np.concatenate([columns["token_end"], padding + 1])
    flow = np.asarray(_sensitivity(small.parameters(small.config()), position, token_end))
    for query in range(WIDTH):
        path = ancestors(forest.prev, query)[::-1] if query < keep else [query]
        assert np.flatnonzero(flow[query]).tolist() == path


@jax.jit
def _sensitivity(params, position, token_end):
    """Largest derivative of each hidden state by the embedding of each token, [queries, keys]; token i has id i."""
    cfg = small.config()

    def hidden(embedding):
        moved = {**params, "embed": {"embedding": embedding}}
        rows = {"token_id": jnp.arange(WIDTH), "position": position, "token_end": token_end}
        out = decoder.apply(
            moved, cfg, **{name: leaf[None] for name, leaf in rows.items()}, remat=False, attention="dense"
        )
        return out[0, :, ::5].sum(axis=-1)

    return jnp.abs(jax.jacrev(hidden)(params["embed"]["embedding"])).max(axis=-1)[:, :WIDTH]


def test_a_packed_row_equals_its_paths():
    """Two trees and padding in one row: every token's hidden state is that of its path alone."""
    cfg, forest = small.config(), random_forest(1, trees=2, depth=2, branching=2, longest=3)
    params = small.parameters(cfg)
    numbered = dataclasses.replace(forest, token_id=np.arange(1, len(forest.token_id) + 1))
    order = pack(numbered, width=48, targets=48, multiple=1).rows.token_id[0] - 1
    rows = pack(forest, width=48, targets=48, multiple=1).rows
    packed = apply(params, rows.token_id, rows.position, rows.token_end)[0]
    for place in np.flatnonzero(order >= 0):
        path = ancestors(forest.prev, order[place])[::-1]
        alone = np.zeros((1, 48), np.int32)
        alone[0, : len(path)] = forest.token_id[path]
        expected = apply(params, alone, np.arange(48)[None], np.full((1, 48), 48))[0, len(path) - 1]
        np.testing.assert_allclose(packed[place], expected, atol=1e-5)


@jax.jit
def apply(params, token_id, position, token_end):
    return decoder.apply(
        params,
        small.config(),
        token_id=token_id,
        position=position,
        token_end=token_end,
        remat=False,
        attention="dense",
    )


@pytest.mark.parametrize("remat", [False, True])
def test_the_decoder_attends_the_same_block_by_block(remat):
    """One tree over three blocks of the row, and padding: hidden states and gradients are those of the dense mask."""
    cfg, width = small.config(), 3 * attention_blocked.BLOCK
    end = np.arange(width) + 1
    end[:40], end[40:190], end[190:370] = 370, 190, 370
    token_id = jnp.asarray(np.random.default_rng(0).integers(cfg.vocab_size, size=(1, width)))
    rows = {"token_id": token_id, "position": jnp.arange(width)[None], "token_end": jnp.asarray(end)[None]}

    @functools.partial(jax.jit, static_argnames="implementation")
    @functools.partial(jax.value_and_grad, has_aux=True)
    def run(params, implementation):
        hidden = decoder.apply(params, cfg, **rows, remat=remat, attention=implementation)
        return jnp.square(hidden[0, :370]).mean() + hidden[0, :370, 0].sum(), hidden[0, :370]

    (_, dense), dense_gradient = run(small.parameters(cfg), "dense")
    (_, blocked), gradient = run(small.parameters(cfg), "blocked")
    np.testing.assert_allclose(blocked, dense, atol=2e-5)
    for got, expected in zip(jax.tree.leaves(gradient), jax.tree.leaves(dense_gradient), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("implementation", ["dense", "blocked"])
def test_a_window_counts_positions_and_not_indices(implementation):
    """Two branches of 100 tokens below a prompt of 30: the second sees the prompt as if the first were not there."""
    cfg, width = small.config(family="gemma2", sliding={**small.SLIDING, "window": 20}), 2 * attention_blocked.BLOCK
    params, token_id = small.parameters(cfg), np.random.default_rng(0).integers(32, size=width)
    end, position = np.arange(width) + 1, np.zeros(width, int)
    end[:30], end[30:130], end[130:230] = 230, 130, 230
    position[:130], position[130:230] = np.arange(130), np.arange(30, 130)
    alone = np.concatenate([token_id[:30], token_id[130:230], np.zeros(width - 130, int)])
    straight = np.where(np.arange(width) < 130, 130, np.arange(width) + 1)
    both = decoder.apply(
        params, cfg, token_id=np.stack([token_id, alone]), position=np.stack([position, np.arange(width)]),
        token_end=np.stack([end, straight]), remat="none", attention=implementation,
    )  # fmt: skip
    np.testing.assert_allclose(both[0, 130:230], both[1, 30:130], atol=2e-5)


def test_an_unknown_attention_is_refused_by_name():
    with pytest.raises(InputError, match="attention 'block' is unknown; did you mean 'blocked'"):
        attention.over_forest(jnp.full((1, 4), 4), implementation="block")


def test_the_kernel_is_refused_off_tpus_before_anything_is_compiled():
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2], axis_types=(jax.sharding.AxisType.Auto,))
    with pytest.raises(InputError, match=r"'pallas' on devices of platform 'cpu'.*set attention to 'blocked'"):
        attention.check_mesh("pallas", mesh)
    attention.check_mesh("blocked", mesh)

"""Estimators whose credit differs from token to token: returns and advantages over sampled tokens, most with a critic.

Axes: N nodes, L paths, D depths, K paths through a node, M blocks, R rows, S slots.

A path is the sequence of its sampled tokens, whatever stands between them: tokens of prompts and observations are no
steps, so they neither discount nor end the sum, and their values are never read. ``V_t`` is what the critic says of the
state in which token t is chosen, after the token before it on its path; behind the last sampled token it is 0. ``r_t``
is the outcome at the path's last sampled token, less what the KL takes at t where it has its place in the reward; an
episode of several contexts earns its outcome at the end of each. With ``step_reward`` the note of that name is added at
the last sampled token of its node; what it says of nodes without sampled tokens is not read.

Between the tokens of a node nothing depends on the path, so all paths through it share that part: with a per-path
number ``A`` for its last token, the token k places before it has ``(discount lam)^k A`` plus a number of its own.

``whiten``: minus the mean and divided by the population deviation over all pairs of a token and a scored path through
it, each counted once, as if every path were a row of its own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlsearch.credit import slots, steps
from rlsearch.credit.algebra import Advantages, Episodes, Track
from rlsearch.credit.registry import estimator
from rlsearch.tree import paths as layouts


@estimator("critic", critic=True, optional=["step_reward"])
def gae(episodes: Episodes, *, discount: float, lam: float, whiten: bool, step_reward: bool) -> Advantages:
    """``A_t = d_t + discount lam A_{t+1}``, ``d_t = r_t + discount V_{t+1} - V_t``, over the sampled tokens of a path.

    Generalised advantage estimation, arXiv 1506.02438, equation 16. The critic learns ``A_t + V_t``, before whitening.
    """
    value, earned = _values(episodes), _earned(episodes, step_reward=step_reward)
    found = _backwards(episodes, value, earned, discount=discount, lam=lam)
    returns = _added(episodes, found, value)
    return _everyone(episodes, _whitened(episodes, found)[0] if whiten else found, returns)


@estimator("critic", critic=True, optional=["step_reward"])
def lambda_return(episodes: Episodes, *, discount: float, lam: float, whiten: bool, step_reward: bool) -> Advantages:
    """``G_t = r_t + discount ((1 - lam) V_{t+1} + lam G_{t+1})``: what GAE is the excess of over ``V_t``.

    The return of TD(lambda) (Sutton and Barto, 2018, chapter 12), which the critic learns too. As an advantage it has
    no baseline but the batch's mean under ``whiten``: the critic is trusted with what follows a token, not with the
    state before it. With ``lam`` 1 no value is read, and it is the discounted reward-to-go.
    """
    value, earned = _values(episodes), _earned(episodes, step_reward=step_reward)
    returns = _added(episodes, _backwards(episodes, value, earned, discount=discount, lam=lam), value)
    return _everyone(episodes, _whitened(episodes, returns)[0] if whiten else returns, returns)


@estimator("critic", critic=True, optional=["step_reward"])
def turn_gae(episodes: Episodes, *, discount: float, lam: float, whiten: bool, step_reward: bool) -> Advantages:
    """GAE whose step is a turn: ``A_k = R_k + discount V_{k+1} - V_k + discount lam A_{k+1}`` for all tokens of turn k.

    Turn-PPO, arXiv 2512.17008, and the utterance level of ArCHer, arXiv 2402.19446. ``V_k`` is the critic's value of
    the state before the turn's first sampled token, ``R_k`` all that the turn's tokens earn. A turn that branches lies
    in several nodes of a path and is one step there. Chosen here: every token of the turn has the turn's return
    ``A_k + V_k`` as its target for the critic, though only the value before the first is read.
    """
    value = _values(episodes)
    earned = _earned(episodes, step_reward=step_reward)
    if episodes.penalty is not None:
        earned = earned - episodes.along(episodes.penalty)
    (before,) = _at(episodes, (value, _place(episodes)[0] == 0))
    opens = _opens_turn(episodes)
    rate = discount * lam
    passed = jnp.where(opens, (discount - rate) * before + rate * earned, earned)
    onward = layouts.to_go(passed, jnp.where(opens, rate, 1.0))
    result = earned + _later(onward) - before  # right where a turn opens, and read there by all of its nodes
    start = jnp.maximum(_newest(opens), 0)
    result, before = (jnp.take_along_axis(x, start, axis=1) for x in (result, before))
    found, returns = Track(result), Track(result + before)
    return _everyone(episodes, _whitened(episodes, found)[0] if whiten else found, returns)


@estimator("batch")
def reinforce_plus_plus(episodes: Episodes, *, discount: float) -> Advantages:
    """``A_t = (G_t - mean(G)) / std(G)`` over all tokens of the batch, ``G_t = r_t + discount G_{t+1}``.

    REINFORCE++, arXiv 2501.03262, equations 8 to 10, where ``discount`` is 1: the outcome less the KL of this token and
    the later ones. The deviation is the population's. Without a KL in the reward all tokens of an episode agree, and an
    episode counts once for each of its tokens.
    """
    tokens = episodes.slots
    if discount == 1.0 and (tokens is None or tokens.penalty is None):
        found = Track(episodes.everywhere(episodes.outcome))
    elif tokens is None:
        raise ValueError("reinforce_plus_plus with a discount needs the batch's tokens")
    else:
        earned = _earned(episodes, step_reward=False)
        found = _backwards(episodes, jnp.zeros(tokens.use.shape), earned, discount=discount, lam=1.0)
    whitened, varies = _whitened(episodes, found)
    return Advantages(whitened, jnp.broadcast_to(varies, episodes.used.shape), jnp.ones_like(episodes.acts))


def _everyone(episodes: Episodes, advantage: Track, returns: Track) -> Advantages:
    """Every episode takes part: where rewards are equal, the critic has still something to learn."""
    return Advantages(advantage, jnp.ones_like(episodes.used), jnp.ones_like(episodes.acts), returns)


def _tokens(episodes: Episodes) -> slots.Slots:
    if episodes.slots is None:
        raise ValueError("this estimator needs the batch's tokens")
    return episodes.slots


def _place(episodes: Episodes) -> tuple[Int[Array, "M R S"], Int[Array, "M R S"]]:
    return slots.place(_tokens(episodes), episodes.nodes.end.shape[0])


def _values(episodes: Episodes) -> Float[Array, "M R S"]:
    """What the critic says of the state before each token, 0 in unused slots."""
    tokens = _tokens(episodes)
    if tokens.value is None:
        raise ValueError("this estimator needs a critic's values")
    return jnp.where(tokens.use, tokens.value, 0.0)


def _earned(episodes: Episodes, *, step_reward: bool) -> Float[Array, "L D"]:
    """What the last sampled token of each node earns on each path, before any penalty; 0 at nodes without one."""
    earned = jnp.where(steps.last_act(episodes), episodes.outcome[:, None], 0.0)
    if step_reward:
        earned = earned + jnp.where(episodes.acts, episodes.along(episodes.note("step_reward")), 0.0)
    return earned


def _at(episodes: Episodes, *pairs: tuple[Float[Array, "M R S"], Bool[Array, "M R S"]]) -> list[Float[Array, "L D"]]:
    """Of each (x, where): x at the one token of each node that ``where`` points out, along the paths; 0 at nodes
    without tokens.
    """
    tokens, n = _tokens(episodes), episodes.nodes.end.shape[0]
    found = slots.node_sum(jnp.stack([jnp.where(where, x, 0.0) for x, where in pairs], axis=-1), tokens, n)
    return list(jnp.moveaxis(episodes.along(found), -1, 0))


def _later(y: Float[Array, "L D"]) -> Float[Array, "L D"]:
    """What stands one node further on each path; 0 behind the last."""
    return jnp.concatenate([y[:, 1:], jnp.zeros_like(y[:, :1])], axis=1)


def _backwards(
    episodes: Episodes, value: Float[Array, "M R S"], earned: Float[Array, "L D"], *, discount: float, lam: float
) -> Track:
    """``A_t = d_t + discount lam A_{t+1}`` of every token on every path; the track's node is that of its last token."""
    tokens, rate = _tokens(episodes), discount * lam
    ahead, behind = _place(episodes)
    first, last = ahead == 0, behind == 0
    lost = value if tokens.penalty is None else value + jnp.where(tokens.use, tokens.penalty, 0.0)
    within = slots.to_node_end(jnp.where(last, 0.0, discount * jnp.roll(value, -1, axis=-1) - lost), tokens, rate)
    ended, begun = _at(episodes, (lost, last), (discount * value + rate * within, first))
    own = earned - ended
    # What the first token of a node is to the sampled token before it, d and A in one: other nodes pass it on.
    powers = jnp.power(rate, jnp.arange(value.shape[-1] + 1, dtype=value.dtype))  # no node has more tokens than a row
    across = episodes.along(powers[jnp.asarray(episodes.nodes.tokens)])
    entered = begun + across * own
    onward = layouts.to_go(entered, across)
    return Track(own + _later(onward), powers[behind], within)


def _added(episodes: Episodes, track: Track, x: Float[Array, "M R S"]) -> Track:
    """The track plus a number of each token."""
    tokens, n = _tokens(episodes), episodes.nodes.end.shape[0]
    last = slots.node_sum(jnp.where(_place(episodes)[1] == 0, x, 0.0), tokens, n)
    offset = track.offset + jnp.where(tokens.use, x - track.decay * last[tokens.node], 0.0)
    return Track(track.node + episodes.along(last), track.decay, offset)


def _opens_turn(episodes: Episodes) -> Bool[Array, "L D"]:
    """Nodes that hold the first sampled token of a turn on each path."""
    newest = _newest(episodes.acts)
    earlier = jnp.concatenate([jnp.full_like(newest[:, :1], layouts.NONE), newest[:, :-1]], axis=1)
    same = jnp.take_along_axis(episodes.turn, jnp.maximum(earlier, 0), axis=1) == episodes.turn
    return episodes.acts & ~((earlier >= 0) & same)


def _newest(where: Bool[Array, "L D"]) -> Int[Array, "L D"]:
    """Depth of the last node up to each, itself included, at which ``where`` holds; NONE before the first."""
    return jax.lax.cummax(jnp.where(where, jnp.arange(where.shape[1])[None, :], layouts.NONE), axis=1)


def _whitened(episodes: Episodes, track: Track) -> tuple[Track, Bool[Array, ""]]:
    """With mean 0 and deviation 1 over all pairs of token and scored path, and whether they differ at all.

    Where they are equal, or differ by what may be rounding alone, all are exactly 0.
    """
    count = jnp.where(episodes.acts & episodes.scored[:, None], episodes.tokens, 0.0)
    if track.decay is None:
        x, within = track.node, jnp.zeros_like(track.node)
        high, low = jnp.where(count > 0, x, -jnp.inf).max(), jnp.where(count > 0, x, jnp.inf).min()
    else:
        x, within = _of_nodes(episodes, track)
        high, low = _extremes(episodes, track, count > 0)
    size = jnp.abs(episodes.outcome).max()
    if episodes.slots is not None and episodes.slots.value is not None:
        size = size + jnp.abs(_values(episodes)).max()
    mean, deviation, varies = _moments(x, within, count, high, low, size)
    node = jnp.where(varies, track.node - mean, 0.0) / deviation
    if track.decay is None:
        return Track(node), varies
    offset = jnp.where(varies, track.offset - (1.0 - track.decay) * mean, 0.0) / deviation
    return Track(node, track.decay, offset), varies


def _of_nodes(episodes: Episodes, track: Track) -> tuple[Float[Array, "L D"], Float[Array, "L D"]]:
    """Mean and population variance of the track over the tokens of each node on each path."""
    tokens, n = _tokens(episodes), episodes.nodes.end.shape[0]
    pair = jnp.stack([track.decay, track.offset], axis=-1)
    length = jnp.maximum(jnp.asarray(episodes.nodes.tokens, pair.dtype), 1.0)
    mean = slots.node_sum(pair, tokens, n) / length[:, None]
    left = pair - mean[tokens.node]
    squares = slots.node_sum(left[..., :, None] * left[..., None, :], tokens, n) / length[:, None, None]
    decay, offset = (episodes.along(mean[:, i]) for i in range(2))
    squares = [episodes.along(squares[:, i, j]) for i, j in ((0, 0), (0, 1), (1, 1))]
    variance = jnp.square(track.node) * squares[0] + 2.0 * track.node * squares[1] + squares[2]
    return decay * track.node + offset, jnp.maximum(variance, 0.0)


def _extremes(
    episodes: Episodes, track: Track, use: Bool[Array, "L D"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:  # fmt: skip
    """Maximum and minimum of the track over all pairs of token and path: no decay is negative, so each token's are
    where its node's are.
    """
    tokens, n = _tokens(episodes), episodes.nodes.end.shape[0]
    both = jnp.stack([track.node, -track.node], axis=-1)
    both = jnp.where(use[..., None], both, -jnp.inf).reshape(-1, 2)
    of_node = jax.ops.segment_max(both, jnp.where(use, episodes.paths.node, n).reshape(-1), n + 1)[tokens.node]
    seen = tokens.use & jnp.isfinite(of_node[..., 0])
    high = jnp.where(seen, track.decay * of_node[..., 0] + track.offset, -jnp.inf)
    low = jnp.where(seen, track.offset - track.decay * of_node[..., 1], jnp.inf)
    return high.max(), low.min()


def _moments(
    x: Float[Array, "L D"], within: Float[Array, "L D"], count: Float[Array, "L D"], high: Float[Array, ""],
    low: Float[Array, ""], size: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:  # fmt: skip
    """Mean and population deviation (1 where all are equal) of numbers, and whether they differ.

    Args:
      x: means of so many numbers each.
      within: their variances.
      count: how many they are; 0 for none.
      high: the highest of all numbers.
      low: the lowest.
      size: of what they are sums of.
    """
    use, total = count > 0, jnp.maximum(count.sum(), 1.0)
    varies = high - low > steps.ROUNDING * jnp.maximum(size, jnp.abs(high))
    mean = jnp.where(jnp.isfinite(high), high, 0.0)
    for _ in range(2):  # the second time takes what rounding the first has left
        mean = mean + jnp.where(use, count * (x - mean), 0.0).sum() / total
    deviation = jnp.sqrt(jnp.where(use, count * (jnp.square(x - mean) + within), 0.0).sum() / total)
    return mean, jnp.where(varies, deviation, 1.0), varies

"""How likely the answer is after a prefix: which answers are asked for, and one number made of several.

Axes: P prefixes, K answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from rlsearch.envs.types import Question, State
from rlsearch.errors import InputError, nearest
from rlsearch.rewards import answers

POLICIES = ("reference", "policy")
_CHOICES = {
    "answers": ("gold", "group"),
    "length": ("total", "mean"),
    "several": ("max", "logsumexp"),
    "scale": ("log", "probability"),
}


@dataclass(frozen=True)
class ScorerConfig:
    """``config.scorer``: a frozen model that says how likely an answer is after every prefix of a rollout.

    Attributes:
      model: "reference", the policy as it was before reinforcement learning; "policy", as it wrote the rollouts; or the
        directory of a Hugging Face model with the policy's tokenizer.
      before: text between the prefix and the answer, such as ``"<answer> "``; context that is not scored.
      after: text that closes the answer and is scored with it; "" scores the answer alone.
      answers: "gold", the question's golden answers; or "group", what its episodes answered, each as often as it was.
      length: "total", the log-probability of an answer; or "mean", that divided by its tokens.
      several: of several answers, "max", the likeliest; or "logsumexp", any of them.
      scale: "log", log-likelihoods; or "probability", their exponentials.
    """

    model: str
    before: str
    after: str
    answers: str
    length: str
    several: str
    scale: str

    def __post_init__(self):
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(
                    f"config.scorer.{name} {getattr(self, name)!r}: unknown{nearest(getattr(self, name), known)}"
                )


def asked(config: ScorerConfig, question: Question, states: Sequence[State]) -> list[tuple[str, float]]:
    """The answers to score and the weight of each: 1 for golden ones, for those of a group their share.

    Answers of a group that are the same after normalisation (``answers.normalise``) are one, in the form that came
    first; there are none where no episode answered.

    Raises:
      InputError: a question without a golden answer, or with a blank one, where those are asked for.
    """
    if config.answers == "gold":
        golds = list(dict.fromkeys(answer.strip() for answer in question.answers))
        if not golds or not all(golds):
            raise InputError(
                f"question {question.id}: golden answers {question.answers!r} cannot be scored; each question needs"
                f" one at least and none that is blank, or set config.scorer.answers to 'group'"
            )
        return [(gold, 1.0) for gold in golds]
    said = [state.answer.strip() for state in states if state.answer is not None and answers.normalise(state.answer)]
    count = Counter(map(answers.normalise, said))
    form = {answers.normalise(answer): answer for answer in reversed(said)}
    return [(form[key], number / len(said)) for key, number in count.items()]


def combine(
    config: ScorerConfig, logp: Float[np.ndarray, "P K"], tokens: Int[np.ndarray, "K"], weight: Float[np.ndarray, "K"]
) -> Float[np.ndarray, "P"]:
    """One number for each prefix: ``max_k`` or ``log sum_k exp`` of ``log w_k + l_k``, or its exponential.

    ``l_k`` is the log-probability of answer k, or under "mean" that divided by its number of tokens. So under "total",
    "logsumexp" and "probability", with ``after`` what ends an answer, it is the chance that an answer which the model
    is made to give here is one of the answers, by its tokens.
    """
    terms = (logp / tokens if config.length == "mean" else logp) + np.log(weight)
    top = terms.max(axis=1)
    if config.several == "logsumexp":
        top = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
    return np.exp(top) if config.scale == "probability" else top

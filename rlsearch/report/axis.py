"""Axes and series for small charts: round ticks, short numbers, linear or logarithmic position, light smoothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Maps values in [low, high] to pixels in [start, end], linearly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, about: int) -> list[float]:
        """Round numbers inside the axis; powers of ten (thinned to ``about``) on a logarithmic one."""
        if not self.log:
            return round_ticks(self.low, self.high, about)
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**p for p in range(first, last + 1, max(1, math.ceil((last - first + 1) / about)))]


def axis(values: Sequence[float], start: float, end: float, *, may_log: bool) -> Axis:
    """An axis that holds ``values`` (at least one): logarithmic when allowed and they span a factor of 30 above zero.

    A linear axis begins at zero when the values come within their own range of it, so that heights can be compared.
    """
    low, high = min(values), max(values)
    if may_log and low > 0 and high / low > 30:
        return Axis(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)), start, end, True)
    if low >= 0 and low <= high - low:
        low = 0.0
    elif high <= 0 and -high <= high - low:
        high = 0.0
    if high <= low:
        margin = abs(high) / 2 or 1.0
        low, high = (0.0 if low == 0 else low - margin), high + margin
    step = _round_step(low, high, 4)
    return Axis(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end, False)


def round_ticks(low: float, high: float, about: int) -> list[float]:
    step = _round_step(low, high, about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _round_step(low: float, high: float, about: int) -> float:
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    return power * next(m for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))


def short(value: float) -> str:
    """Three significant digits, thousands as k, millions as M; tiny numbers in powers of ten; a real minus sign."""
    size = abs(value)
    if size >= 1e6:
        text = f"{value / 1e6:.3g}M"
    elif size >= 1e4:
        text = f"{value / 1e3:.3g}k"
    elif size >= 1000:
        text = f"{value:,.0f}"
    elif size >= 1e-3 or size == 0:
        text = f"{value:.3g}"
    else:
        text = f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")
    return text.replace("-", "\u2212")


def smooth(values: Sequence[float | None], *, log: bool) -> list[float | None]:
    """Centred triangular mean over about a twenty-fifth of the series on either side; gaps stay gaps.

    With ``log`` (all values above zero) the mean is geometric, so that one spike does not lift a chart of logarithms.
    """
    if log:
        means = smooth([None if v is None else math.log(v) for v in values], log=False)
        return [None if v is None else math.exp(v) for v in means]
    radius = len(values) // 25
    out: list[float | None] = []
    for i, value in enumerate(values):
        total = weight = 0.0
        for j in range(max(0, i - radius), min(len(values), i + radius + 1)) if value is not None else ():
            if values[j] is not None:
                w = radius + 1 - abs(i - j)
                total, weight = total + w * values[j], weight + w
        out.append(total / weight if value is not None else None)
    return out

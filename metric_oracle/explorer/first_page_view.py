"""The sentences of the explorer's first page, and the positions at which the scores of systems are drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from metric_oracle.explorer.first_page import Mark, Strip

# Drawn around (0, 0). A role has its own shape as well as its own colour.
SHAPES = {
    "chance": "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z",
    "frequent": "M-4.5,-4.5h9v9h-9z",
    "other": "M-4,-4L4,4M4,-4L-4,4",
    "model": "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0z",
    "oracle": "M0,-7L7,5H-7z",
    "perfect": "M0,-7.5L6,0L0,7.5L-6,0z",
}
_WIDTH = 1150  # pixels of a strip on a wide screen, on which names are kept apart
_MARGIN = 2  # per cent of a strip left free on both sides


def places(strip: Strip) -> dict[str, Any]:
    """Return where the marks of a strip, their names and the ticks of its axis are, in per cent of its width.

    The best score is on the right, also where lower is better.
    """
    marks: list[dict[str, Any]] = []
    ends_of_level: list[float] = []
    for mark in strip.marks:
        x = position(strip, mark.mean)
        half = 3.7 * len(_short(mark.name)) + 8
        left = min(max(x / 100 * _WIDTH - half, 0), _WIDTH - 2 * half)
        level = next((i for i, end in enumerate(ends_of_level) if end <= left), len(ends_of_level))
        ends_of_level[level : level + 1] = [left + 2 * half]
        anchor = "start" if left == 0 else "end" if left >= _WIDTH - 2 * half - 1 else "middle"
        marks.append(
            {
                "x": f"{x:.2f}%",
                "ends": mark.ends and sorted(f"{position(strip, end):.2f}%" for end in mark.ends[:2]),
                "role": mark.role,
                "name": _short(mark.name),
                "anchor": anchor,
                "label_x": {"start": "0%", "end": "100%"}.get(anchor, f"{x:.2f}%"),
                "label_y": 52 + 16 * level,
            }
        )
    return {
        "height": 42 + 16 * max(1, len(ends_of_level)),
        "ticks": [(f"{position(strip, value):.2f}%", f"{value:g}") for value in _ticks(strip.low, strip.high)],
        "marks": marks,
    }


def position(strip: Strip, value: float) -> float:
    """Return where a score is on the axis of a strip, in per cent from the left."""
    share = (value - strip.low) / (strip.high - strip.low)
    return _MARGIN + (100 - 2 * _MARGIN) * (share if strip.sign > 0 else 1 - share)


def _short(name: str) -> str:
    return name if len(name) <= 28 else name[:27] + "…"


def _ticks(low: float, high: float) -> list[float]:
    step = 10.0 ** np.floor(np.log10((high - low) / 2))
    step = next(step * factor for factor in (1, 2, 2.5, 5, 10) if (high - low) / (step * factor) <= 5)
    return [round(n * step, 10) for n in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def listed(words: Sequence[str]) -> str:
    """Return words as they are listed in a sentence: "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def verdict(mark: Mark, strip: Strip) -> str:
    """Return "better" or "worse" if the interval of a system's difference from the oracle excludes 0, else "open".

    Return "" if no difference is known.
    """
    if mark.difference is None:
        return ""
    low, high = mark.difference.interval[:2]
    if low <= 0 <= high:
        return "open"
    return "better" if strip.sign * low > 0 else "worse"


def verdicts(strips: Sequence[Strip]) -> list[tuple[str, str]]:
    """Return, for each model, its name and the rest of a sentence: whether it beats the oracle, under which metrics.

    The oracle copies the best report of the corpus, so the sentence speaks of "the best possible copying".
    """
    metrics_of: dict[str, dict[str, list[str]]] = {}
    for strip in strips:
        for mark in strip.models:
            metrics_of.setdefault(mark.name, {}).setdefault(verdict(mark, strip), []).append(strip.title)
    n = max((strip.n for strip in strips), default=0)
    unsure = f", as far as {n:,} test reports show"
    ends = {"better": ("above", ""), "worse": ("below", ""), "open": ("neither above nor below", unsure)}
    lines = []
    for name, titles in metrics_of.items():
        first, *others = [key for key in ends if key in titles] or [""]
        if first:
            word, rest = ends[first]
            sentence = f"is {word} the best possible copying under {listed(titles[first])}{rest}."
            more = [f"Under {listed(titles[key])} it is {''.join(ends[key])}." for key in others]
            lines.append((name, " ".join([sentence, *more])))
    return lines


def copies_sentence(copies: np.ndarray | None, strips: Sequence[Strip], is_searched: bool) -> str:
    """Return a sentence: how many test reports are word for word in the corpus, and the oracles' means on the others.

    It is empty if that is not known, although index and test reports were given (`is_searched`).
    """
    if copies is None:
        return "" if is_searched else "With --index and --queries, this page counts the copies in the corpus."
    n, n_reports = int(copies.sum()), len(copies)
    if not n:
        return f"None of the {n_reports:,} test reports is word for word in the corpus."
    scores = [
        f"{strip.without_copies.mean:z.3f} instead of {strip.oracle.mean:z.3f} under {strip.title}"
        for strip in strips
        if strip.without_copies is not None and strip.oracle is not None
    ]
    rest = f"On the other {n_reports - n:,}, the oracle scores {listed(scores)}." if scores else ""
    return f"{n:,} of {n_reports:,} test reports {'are' if n > 1 else 'is'} word for word in the corpus. {rest}".strip()


def alone_sentence(counts: Sequence[tuple[str, int]], titles: dict[str, str], differ: int, n: int) -> str:
    """Return a sentence: for how many test reports oracles choose different reports, and which is alone most often.

    `counts` are those of `finding.alone`, without which the sentence is empty; `titles` is metric -> title; `differ` of
    the `n` test reports have different reports.
    """
    if not counts:
        return ""
    line = f"The oracles choose different reports for {differ:,} of {n:,} test reports"
    if len(counts) == 2:
        return f"{line} ({listed([titles[metric] for metric, _ in counts])})."
    metric, most = max(counts, key=lambda count: count[1])
    return f"{line}. The oracle of {titles[metric]} differs from all others most often, for {most:,}."

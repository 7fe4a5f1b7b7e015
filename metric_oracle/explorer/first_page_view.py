"""The sentences of the explorer's first page, and the positions at which the scores of systems are drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from metric_oracle.explorer.cases import MODEL, ORACLE, OTHER
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
_SHARED = 28  # letters of the names that one label lists
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_KINDS = {  # of marks that share a label
    MODEL: "models", ORACLE: "oracles", OTHER: "oracles",
    "chance": "baselines", "frequent": "baselines", "perfect": "baselines",
}  # fmt: skip
_MARGIN = 2  # per cent of a strip left free on both sides


def places(strip: Strip) -> dict[str, Any]:
    """Return where the marks of a strip, their labels and the ticks of its axis are, in per cent of its width.

    The best score is on the right, also where lower is better. The labels of the oracles of
    other metrics are on a second line.
    """
    at = [(position(strip, mark.mean), mark) for mark in strip.marks]
    lines = [[one for one in at if (one[1].role != OTHER) == is_first] for is_first in (True, False)]
    labels = [
        {**label, "y": 52 + 16 * number} for number, line in enumerate(filter(None, lines)) for label in _labels(line)
    ]
    return {
        "height": 42 + 16 * max(1, len([line for line in lines if line])),
        "ticks": [(f"{position(strip, value):.2f}%", f"{value:g}") for value in _ticks(strip.low, strip.high)],
        "marks": [
            {
                "x": f"{x:.2f}%",
                "ends": mark.ends and sorted(f"{position(strip, end):.2f}%" for end in mark.ends[:2]),
                "role": mark.role,
            }
            for x, mark in at
        ],
        "labels": labels,
    }


def _labels(line: Sequence[tuple[float, Mark]]) -> list[dict[str, Any]]:
    """Return the labels of one line, which do not overlap: marks within the width of a label share one.

    `line` has the places of marks and the marks, in the order of the axis.
    """
    groups = [[one] for one in line]
    i = 0
    while i + 1 < len(groups):
        if _span(groups[i])[1] > _span(groups[i + 1])[0]:
            groups[i : i + 2] = [groups[i] + groups[i + 1]]
            i = max(i - 1, 0)
        else:
            i += 1
    labels = []
    for group in groups:
        left, right = _span(group)
        anchor = "start" if left == 0 else "end" if right == _WIDTH else "middle"
        roles = {mark.role for _, mark in group}
        labels.append(
            {
                "text": _label(group),
                "role": roles.pop() if len(roles) == 1 else "" if roles & {MODEL, ORACLE} else OTHER,
                "anchor": anchor,
                "x": {"start": "0%", "end": "100%"}.get(anchor, f"{(left + right) / 2 / _WIDTH * 100:.2f}%"),
            }
        )
    return labels


def _span(group: Sequence[tuple[float, Mark]]) -> tuple[float, float]:
    """Return where the label of a group begins and ends, in pixels, with a space on both sides."""
    width = 7.4 * len(_label(group)) + 16
    left = (group[0][0] + group[-1][0]) / 200 * _WIDTH - width / 2
    left = min(max(left, 0), _WIDTH - width)
    return left, left + width


def _label(group: Sequence[tuple[float, Mark]]) -> str:
    """Return the names of a group; for more than fit beside one another, how many there are, and their range."""
    names = ", ".join(_short(mark.name) for _, mark in group)
    if len(group) == 1 or len(names) <= _SHARED:
        return names
    kinds = {_KINDS[mark.role] for _, mark in group}
    kind = kinds.pop() if len(kinds) == 1 else "systems"
    means = sorted(mark.mean for _, mark in group)
    number = _NUMBERS[len(group)] if len(group) < len(_NUMBERS) else f"{len(group)}"
    return f"{number} {kind} {means[0]:z.2f} to {means[-1]:z.2f}"


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

"""Pictures of a comparison with radiologists: errors against scores (figure 3 of Yu et al.), by category (figure 4)."""

from itertools import product
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from metric_oracle.corpora.raters import KINDS
from metric_oracle.evaluation.alignment import MEAN, Alignment, fit
from metric_oracle.evaluation.failure_modes import FailureModes
from metric_oracle.presentation.matplotlib_io import new_figure, write_figure
from metric_oracle.presentation.ratings_layout import KIND_NAMES, agreement_entry, candidate_name, category_title

_KIND_LABELS = {"total": "all errors", "significant": "clinically significant errors"}


def draw_alignment(alignment: Alignment) -> Any:
    """Return a Matplotlib figure: mean errors against scores with the least-squares line, figure 3 of Yu et al."""
    names = list(alignment.scores)
    figure = new_figure("align", max(3.0 * len(names), 4.5), 6)
    records = {
        (r["metric"], r["errors"]): r
        for r in alignment.table.to_pylist()
        if (r["rater"], r["statistic"]) == (MEAN, "tau-b")
    }
    panels = figure.subplots(len(KINDS), len(names), squeeze=False, sharex="col", sharey="row")
    for (row, kind), (column, name) in product(enumerate(KINDS), enumerate(names)):
        panel, x, y = panels[row, column], alignment.scores[name], alignment.errors[kind]
        slope, intercept, r_squared = fit(x, y)
        ends = np.array([x.min(), x.max()])
        panel.scatter(x, y, s=14, alpha=0.45, linewidths=0)
        panel.plot(ends, slope * ends + intercept, color="black", linewidth=1.2)
        shown = "\n".join(agreement_entry(records[name, kind]).lines)
        label = f"tau-b {shown}\nR² {'undefined' if r_squared is None else f'{r_squared:.3f}'}"
        corner = 0.03 if name in alignment.signature["lower_is_better"] else 0.97
        panel.text(
            corner, 0.97, label, transform=panel.transAxes, va="top", ha="left" if corner < 0.5 else "right", fontsize=8
        )
        # Room for the label above the points.
        panel.set_ylim(bottom=-0.03 * max(y.max(), 1), top=1.25 * max(y.max(), 1))
        if row == 0:
            panel.set_title(name, fontsize=10)
        else:
            panel.set_xlabel("score (lower is better)" if corner < 0.5 else "score", fontsize=9)
        if column == 0:
            panel.set_ylabel(f"{KIND_NAMES[kind].replace(chr(10), ' ')}, mean of raters", fontsize=9)
    return figure


def plot_alignment(alignment: Alignment, path: str | Path) -> None:
    """Write the figure of an alignment as PNG, SVG or PDF by the ending of `path`."""
    write_figure(Path(path), draw_alignment(alignment), "align")


def draw_failure_modes(found: FailureModes) -> Any:
    """Return a Matplotlib figure: mean errors by category and candidate type, a star over significant differences.

    Figure 4 of Yu et al.
    """
    n = len(found.candidates)
    width = 0.8 / n
    figure = new_figure("failure_modes", max(1.6 * len(found.categories), 6), 7)
    panels = figure.subplots(len(KINDS), 1, sharex=True)
    tests = [r for r in found.tests.to_pylist() if r["significant"]]
    for panel, kind in zip(panels, KINDS, strict=True):
        means = found.means[kind]
        places = np.arange(len(found.categories)) + (np.arange(n)[:, None] - (n - 1) / 2) * width
        for candidate, x, heights in zip(found.candidates, places, means, strict=True):
            panel.bar(x, heights, width * 0.92, label=_literal(candidate_name(candidate)))
        step = 0.06 * max(means.max(), 1e-9)
        for place, category in enumerate(found.categories):
            top = means[:, place].max()
            for record in (r for r in tests if (r["errors"], r["category"]) == (kind, category)):
                top += step
                ends = [places[found.candidates.index(record[side]), place] for side in ("a", "b")]
                panel.plot(ends, [top, top], color="black", linewidth=0.9)
                panel.text(sum(ends) / 2, top, "*", ha="center", va="baseline", fontsize=10)
        panel.margins(y=0.08)
        panel.set_ylabel(f"{_KIND_LABELS[kind]} of a report, mean", fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=n, fontsize=9)
    labels = [fill(_literal(category_title(category)), 22) for category in found.categories]
    panels[-1].set_xticks(range(len(labels)), labels, fontsize=8)
    panels[-1].set_xlabel(f"* significant difference, Benjamini-Hochberg at {found.signature['rate']:g}", fontsize=8)
    return figure


def plot_failure_modes(found: FailureModes, path: str | Path) -> None:
    """Write the figure of failure modes as PNG, SVG or PDF by the ending of `path`."""
    write_figure(Path(path), draw_failure_modes(found), "failure_modes")


def _literal(text: str) -> str:
    """Return a name as Matplotlib shows it to the letter: what stands between dollars would be a formula."""
    return text.replace("$", r"\$")

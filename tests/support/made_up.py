"""Made-up reports full of ties and duplicates, a judge of them, and its mirror image."""

import random

import metric_oracle as mo

SENTENCES = (
    "No acute process.",
    "Small left effusion.",
    "Small right effusion.",
    "Heart size is normal.",
    "No pneumothorax.",
    "Mild edema.",
    "Lines are unchanged.",
    "No change.",
)


def reports(n, seed, name="s"):
    """Return n reports by id, of one to four sentences, so that texts, parts of them and scores repeat."""
    rng = random.Random(seed)
    return {f"{name}{i:03}": " ".join(rng.sample(SENTENCES, rng.choice((1, 1, 2, 2, 3, 4)))) for i in range(n)}


def worth(pairs):
    """Judge pairs of texts: 0, 1/8, ... 1, the share of common words."""
    words = [[set(text.split()) for text in pair] for pair in pairs]
    return [round(8 * len(a & b) / max(len(a | b), 1)) / 8 for a, b in words]


def fault(pairs):
    """Judge pairs by the negative of `worth`, of which less is better."""
    return [-score for score in worth(pairs)]


JUDGE = mo.judge(worth, name="worth", direction="higher", best=1.0)
MIRRORED = mo.judge(fault, name="worth", direction="lower", best=-1.0)
TURNED = ("score", "worth", "best", "mean", "utility", "difference", "mean best", "all samples", "chosen samples")
ENDS = {"low": "high", "interval_low": "interval_high", "minimum": "maximum", "difference_low": "difference_high"}
ENDS |= {high: low for low, high in ENDS.items()}
# Changes from random are in percent of it, which are not defined below 0.
OF_DIRECTION = ("direction", "percent_change_from_random", "percent_change_low", "percent_change_high")


def mirrored(record, name="worth"):
    """Return a row of numbers as the mirrored judge has it: scores are negated and ends of intervals change places.

    A row of another metric, as `name` has that of the judge, is as it was.
    """
    is_other = record.get("metric", name) not in (name, None)
    found = {}
    for key, value in record.items():
        if key in OF_DIRECTION:
            continue
        if key in ENDS and not is_other:
            value = record[ENDS[key]]
        is_turned = (key in TURNED or key in ENDS) and isinstance(value, float) and not is_other
        value = -value if is_turned else value
        found[key] = value + 0.0 if isinstance(value, float) else value  # 0 has no sign
    return found


def plain(record):
    """Return a row of numbers without what depends on the direction, as `mirrored` does."""
    return {
        key: value + 0.0 if isinstance(value, float) else value
        for key, value in record.items()
        if key not in OF_DIRECTION
    }

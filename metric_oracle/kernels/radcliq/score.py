"""RadCliQ from the values of its parts. Plain scalar Python; the fast kernels compile these very functions.

The constants are the released parameters of Yu et al. (Patterns 2023; github.com/rajpurkarlab/CXR-Report-Metric): each
part is standardised with the mean and the population standard deviation of ReXVal's pairs and enters a linear
regression on the number of errors. The score predicts errors: lower is better.
"""

from metric_oracle.kernels._jit import scalar

PARTS = ("radgraph", "bertscore", "chexbert", "bleu")
# Variant -> part -> (mean, scale, weight), and the intercept. A part that is not there has no weight.
CONSTANTS = {
    "v0": (
        {
            "radgraph": (0.5398376019082272, 0.3018344440559102, -0.4796252644863446),
            "bertscore": (0.6312549595000001, 0.22466950746141123, -0.6762170542369337),
            "chexbert": (0.7716797866672277, 0.24750333805236252, -0.46366575161751994),
            "bleu": (0.4607372064809605, 0.30336670936092264, 0.2165861905287535),
        },
        1.641666666666666,
    ),
    # BLEU has a released weight of 4.3e-12 here, which moves no score by more than 2e-11: it is left out.
    "v1": (
        {
            "radgraph": (0.5379231241355762, 0.3028258411486429, -0.37708368261038905),
            "bertscore": (0.6175725628125001, 0.22430938459304575, -0.37030009974480316),
            "chexbert": (0.7647942121140658, 0.2539439110169773, -0.25261621789593225),
        },
        2.466552561323256e-10,
    ),
    # The preprint (medRxiv 2022.08.30.22279318) prints weights and intercept. Its normalisation is not published; that
    # of v0 is ReXVal's own, which the preprint's composite was fitted on too.
    "preprint": (
        {
            "radgraph": (0.5398376019082272, 0.3018344440559102, -0.526),
            "bleu": (0.4607372064809605, 0.30336670936092264, -0.559),
        },
        1.642,
    ),
}


def table(variant):
    """Return mean, scale and weight of each of PARTS, weight 0 for those that are left out, and the intercept."""
    parts, intercept = CONSTANTS[variant]
    return tuple(parts.get(part, (0.0, 1.0, 0.0)) for part in PARTS), intercept


@scalar
def term(value, mean, scale, weight):
    """Return what one part adds to the score."""
    return weight * ((value - mean) / scale)


@scalar
def radcliq(radgraph, bertscore, chexbert, bleu, constants, intercept):
    """Return RadCliQ of one pair; parts without a weight are not looked at."""
    total = intercept
    for value, (mean, scale, weight) in zip((radgraph, bertscore, chexbert, bleu), constants):  # noqa: B905
        if weight != 0.0:
            total += term(value, mean, scale, weight)
    return total

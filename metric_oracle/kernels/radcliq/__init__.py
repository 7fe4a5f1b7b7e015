"""RadCliQ: composites that predict how many errors a radiologist finds; `kernels/sum` is their kernel."""

from dataclasses import replace

from metric_oracle.kernels import bertscore, bleu, cosine, radgraph
from metric_oracle.records import USUAL, Metric, Term, linear

_METRICS = {metric.name: metric for folder in (bertscore, bleu, cosine, radgraph) for metric in folder.METRICS}


def _term(name: str, mean: float, scale: float, weight: float) -> Term:
    """Return the term of a metric with its mean, scale and weight."""
    return Term(_METRICS[name], mean, scale, weight)


# The released parameters of Yu et al. (Patterns 2023; github.com/rajpurkarlab/CXR-Report-Metric): each part is
# standardised with the mean and the population standard deviation of ReXVal's pairs and enters a linear regression on
# the number of errors. Metric, mean, scale, weight.
_V0 = (
    _term("radgraph", 0.5398376019082272, 0.3018344440559102, -0.4796252644863446),
    _term("bertscore", 0.6312549595000001, 0.22466950746141123, -0.6762170542369337),
    _term("chexbert", 0.7716797866672277, 0.24750333805236252, -0.46366575161751994),
    _term("bleu-2", 0.4607372064809605, 0.30336670936092264, 0.2165861905287535),
)
# BLEU has a released weight of 4.3e-12 here, which moves no score by more than 2e-11: it is left out.
_V1 = (
    _term("radgraph", 0.5379231241355762, 0.3028258411486429, -0.37708368261038905),
    _term("bertscore", 0.6175725628125001, 0.22430938459304575, -0.37030009974480316),
    _term("chexbert", 0.7647942121140658, 0.2539439110169773, -0.25261621789593225),
)
# The preprint (medRxiv 2022.08.30.22279318) prints weights and intercept. Its normalisation is not published; that of
# v0 is ReXVal's own, which the preprint's composite was fitted on too.
_PREPRINT = (replace(_V0[0], weight=-0.526), replace(_V0[3], weight=-0.559))
METRICS: tuple[Metric, ...] = (
    linear(
        "radcliq",
        _V1,
        2.466552561323256e-10,
        "Yu et al., Patterns 2023",
        shown_in=USUAL,
        tool="cxr-report-metric",
        title="RadCliQ (predicted errors)",
        column="RadCliQ-v1",
    ),
    linear(
        "radcliq:v0",
        _V0,
        1.641666666666666,
        "Yu et al., released code, version 0",
        shown_in=("score",),
        tool="cxr-report-metric",
        title="RadCliQ-v0 (predicted errors)",
        column="RadCliQ-v0",
    ),
    linear(
        "radcliq:preprint",
        _PREPRINT,
        1.642,
        "Yu et al., medRxiv 2022, normalised as version 0",
        title="RadCliQ of the preprint (predicted errors)",
    ),
)

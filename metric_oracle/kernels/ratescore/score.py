"""RaTEScore's weights, cosine and final formula, as in the package ratescore 0.6.0 (Zhao et al., EMNLP 2024)."""

import numpy as np

# Those of `corpora.entities`, in its order.
TYPES = ("abnormality", "anatomy", "disease", "non-abnormality", "non-disease")
# Rows: type of an entity; columns: type of its nearest one on the other side.
_MATRICES = {
    "long": (
        (0.4276119164393705, 0.6240929990607657, 0.0034478181112993847, 0.5431049700217344, 0.27005425386213877),
        (0.7487824274337533, 0.2856134859160784, 0.4592143222158069, 0.02097055139911715, 0.00013736314126696204),
        (0.8396510075734789, 0.9950209388542061, 0.8460555030578727, 0.9820689020512646, 0.3789136708096537),
        (0.16546764653692908, 0.018670610691852826, 0.719397354576018, 0.0009357166071730684, 0.0927333564267591),
        (0.7759420231214385, 0.1839139293714062, 0.10073046076318157, 0.03860183811876373, 0.34065681486566446),
    ),
    "short": (
        (0.4070293318365468, 0.6952639610605605, 0.28342529466226446, 0.9479148658006686, 0.23875064111146294),
        (0.5829759950441763, 0.7709590751917746, 0.0006059634829551632, 0.794672584951181, 0.27982942400798977),
        (0.8840397619834857, 0.9637659445696822, 0.19018958438059513, 0.6962283914800402, 0.943727057946997),
        (0.1712744286898638, 0.4485149671497294, 0.00045065329822896076, 0.0007887930317199857, 0.8555432840895761),
        (0.9555801066212176, 0.13122106162635216, 0.6072996585919443, 0.05650711141169969, 0.3214769399791204),
    ),
}  # fmt: skip
_OPPOSITE = {"long": 0.8716553966489615, "short": 0.3611577852354489}
CHUNK = 1 << 20  # numbers of a block of products: 8 MiB
NOTHING = 0.5  # of a pair of which a side has no entity
WEIGHTS = {name: np.array(rows) for name, rows in _MATRICES.items()}
_NEGATED = np.array([name.startswith("non-") for name in TYPES])
_IS_FINDING = np.array([name != "anatomy" for name in TYPES])
# What a cosine counts: less where one side has the finding and the other its absence.
FACTORS = {
    name: np.where((_NEGATED[:, None] != _NEGATED) & _IS_FINDING[:, None] & _IS_FINDING, opposite, 1.0)
    for name, opposite in _OPPOSITE.items()
}


def norms(vectors: np.ndarray) -> np.ndarray:
    """Return the squared lengths of vectors float32[n, d]: float64[n]. The bits of each depend on its vector alone."""
    out = np.empty(len(vectors))
    n = max(CHUNK // max(vectors.shape[1], 1), 1)
    for i in range(0, len(vectors), n):
        wide = vectors[i : i + n].astype(np.float64)
        np.sum(wide * wide, axis=1, out=out[i : i + n])
    return out


def cosines(a: np.ndarray, b: np.ndarray, squares_a: np.ndarray, squares_b: np.ndarray) -> np.ndarray:
    """Return the cosines of vectors `a`, float32[n, d], with `b`, float32[m, d]: float64[n, m].

    `squares_a` and `squares_b` are what `norms` returns. The bits of each cosine depend on its two vectors alone, not
    on the others in the arrays: NumPy adds the products of each pair in the same order. They are symmetric in the two
    vectors.
    """
    out = np.empty((len(a), len(b)))
    wide = a.astype(np.float64)[:, None, :]
    n = max(CHUNK // max(a.size, 1), 1)
    for i in range(0, len(b), n):
        np.sum(wide * b[None, i : i + n], axis=2, out=out[:, i : i + n])
    return out / np.sqrt(squares_a[:, None] * squares_b)


def join(precision: np.ndarray, recall: np.ndarray) -> np.ndarray:
    """Return the harmonic means of precision p and recall r, 2 p r / (p + r), float64[n]; 0 where p + r is 0."""
    total = precision + recall
    return np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total != 0)

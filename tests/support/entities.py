"""Made-up entities of reports with vectors, the same for the golden script of RaTEScore and for its tests."""

import numpy as np

from metric_oracle.corpora.entities import TYPES

WIDTH = 24


def made_up(n=320, seed=3):
    """Return n pairs (candidate, reference) of lists of (type, float32 vector); some lists are empty."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((40, WIDTH))

    def entities(size):
        of = rng.integers(0, len(directions), size)
        vectors = (directions[of] + rng.standard_normal((size, WIDTH)) * 0.4) * rng.uniform(0.5, 9, (size, 1))
        return list(zip(rng.choice(TYPES, size).tolist(), vectors.astype(np.float32), strict=True))

    return [(entities(int(rng.integers(0, 13))), entities(int(rng.integers(0, 9)))) for _ in range(n)]

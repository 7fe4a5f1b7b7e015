"""A prepared set of reports: an index whose texts and sources are inputs again.

What comes back gives the answers of the files that it was built from, bit for bit. So each set of reports is prepared
once, and no model runs again.
"""

import numpy as np

from metric_oracle.indexes.index import Index
from metric_oracle.metrics import REPRESENTATIONS
from metric_oracle.sources.contract import source_of
from metric_oracle.sources.inputs import Inputs


def prepared_inputs(index: Index) -> Inputs:
    """Return the reports of an index with everything that was stored for them."""
    attached = {}
    for kind, recorded in index.content["representations"].items():
        source = REPRESENTATIONS[kind].source
        if source is not None:
            part = index.part(kind)
            of_row = np.full(index.n_reports, -1, np.int64)
            of_row[: len(part.unit_of_row)] = part.unit_of_row
            restored = source_of(source.name).restore(part, of_row, recorded, index)
            if restored is not None:
                attached[kind] = restored
    ids, texts = (index.strings(column).to_pylist() for column in ("study_id", "text"))
    return Inputs(ids, texts, attached, section=index.section)

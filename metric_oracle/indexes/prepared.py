"""Prepared reports: an index whose texts and sources are used as inputs.

They give the same results as the files from which the index was built, bit for bit. So a set of reports is prepared
once, and no model runs again.
"""

from dataclasses import replace

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.lists import documents_of_rows
from metric_oracle.metrics import REPRESENTATIONS
from metric_oracle.sources.contract import source_of


def prepared_reports(index: Index) -> Reports:
    """Return the reports of an index with all sources that it stores."""
    attached = {}
    for kind, recorded in index.content["representations"].items():
        source = REPRESENTATIONS[kind].source
        if source is not None:
            part = index.part(kind)
            of_row = documents_of_rows(part.row_ptr, part.row_id, index.n_reports)
            restored = source_of(source.name).restore(part, of_row, recorded, index)
            if restored is not None:
                attached[kind] = replace(restored, stored_in=index.checksum)
    ids, texts = (index.strings(column).to_pylist() for column in ("study_id", "text"))
    columns = {name: index.strings(name).to_pylist() for name in index.columns}
    return Reports(
        ids,
        texts,
        f"prepared set {index.folder.name}: {index.content['source']}",
        {"rows": len(ids), "kept": len(ids)},
        {"missing": [], "empty": [], "tokenless": []},
        *index.section,
        columns=columns,
        attached=attached,
        stored=(index.checksum, np.arange(index.n_reports)),
        is_loaded=True,
    )

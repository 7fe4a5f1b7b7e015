"""Changed copies of what a corpus or a batch of queries brings."""

from dataclasses import replace
from typing import Any

from metric_oracle.corpora.reports import Reports


def changed(inputs: Reports, kind: str, **changes: Any) -> Reports:
    """Return inputs with another `values`, `of_row`, `settings` or `made_by` of one attachment."""
    return replace(inputs, attached={**inputs.attached, kind: replace(inputs.attached[kind], **changes)})

"""The names of `sources` at their former place, until every module imports them from there."""

from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.inputs import ARGUMENTS, Inputs, is_model, load_inputs
from metric_oracle.sources.token_states import Encoding, check_max_memory, load_encoding

__all__ = [
    "ARGUMENTS",
    "Attachment",
    "Encoding",
    "Inputs",
    "check_max_memory",
    "is_model",
    "load_encoding",
    "load_inputs",
]

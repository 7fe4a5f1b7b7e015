"""Roles of the docstrings, which name other functions, as plain code."""

import re
from typing import Any

ROLE = re.compile(r":(?:func|class|meth|mod|attr):(?=<code|<a)")


def on_page_content(html: str, **_: Any) -> str:
    """Leave out the names of roles before what they name."""
    return ROLE.sub("", html)

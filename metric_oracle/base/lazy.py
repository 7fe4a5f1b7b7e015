"""Public names of a package that are imported when first used, as its stub file ``__init__.pyi`` lists them."""

from functools import cache
from importlib import import_module
from pkgutil import get_data
from typing import Any


@cache
def _names(package: str) -> dict[str, str]:
    """Return the module of each public name of a package."""
    import ast

    lines = ast.parse(get_data(package, "__init__.pyi") or b"").body
    imports = [(line.module, line.names) for line in lines if isinstance(line, ast.ImportFrom)]
    return {alias.name: str(module) for module, aliases in imports for alias in aliases}


def load(package: str, name: str) -> Any:
    """Import a public name and return what it stands for, for the ``__getattr__`` of a package.

    ``__all__`` is the sorted list of names. Raise AttributeError for any other name.
    """
    names = _names(package)
    if name == "__all__":
        return sorted(names)
    if name not in names:
        msg = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(names[name]), name)

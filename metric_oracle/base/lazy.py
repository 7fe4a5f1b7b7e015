"""Public names of a package that are imported when first used, as its stub file ``__init__.pyi`` lists them."""

from functools import cache
from importlib import import_module
from pkgutil import get_data
from typing import Any


@cache
def _names(package: str) -> dict[str, tuple[str, str]]:
    """Return, for each public name of a package, its module and its name there."""
    import ast

    imported: dict[str, tuple[str, str]] = {}
    names: dict[str, tuple[str, str]] = {}
    for line in ast.parse(get_data(package, "__init__.pyi") or b"").body:
        match line:
            case ast.ImportFrom(module=str(module), names=aliases):
                imported |= {alias.name: (module, alias.name) for alias in aliases}
                names |= {alias.name: imported[alias.name] for alias in aliases if alias.asname}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=original)):
                names[name] = imported[original]
    return names


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
    module, original = names[name]
    return getattr(import_module(module), original)

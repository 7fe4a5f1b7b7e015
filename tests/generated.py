"""Write the files that are made from other files: `python tests/generated.py`.

- ``metric_oracle/__init__.pyi``: the public names, for type checkers, from `metric_oracle.MODULES`
- ``metric_oracle/commands/listed.json``: what `oracle --help` shows, from the commands
- ``docs/api.md``: the reference of the public names, from `metric_oracle.MODULES`
"""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import metric_oracle
from metric_oracle.commands import FAMILIES
from metric_oracle.commands.listing import Listed

# The headings of the reference, and the folders and files of the package whose public names stand below them.
REFERENCE = {
    "Reports and files": ("reading", "projects", "corpora", "annotating", "findings"),
    "Indexes and search": ("indexes", "retrieval", "pools", "verification", "judges", "metrics"),
    "Scores": ("scores", "samples", "statistics"),
    "Tables and studies": ("tables", "copies"),
    "Training pairs": ("mining",),
    "Radiologists": ("raters", "survey"),
    "Errors": ("base",),
}
INTRODUCTION = """\
Made from the docstrings. After `import metric_oracle as mo`, each name below is `mo.NAME`.

Results of comparisons, samples, copies, random retrieval and radiologists have the same methods: `write(path)` writes
the tables (`.md`, `.tex`), all numbers (`.csv`, `.parquet`, `.jsonl`) or the figure (`.png`, `.svg`, `.pdf`);
`tables()` and `figure()` return them, `records()`, `to_polars()` and `to_pandas()` the numbers."""


def path_of(file: str) -> Path:
    """Return the path of a file: of the package that is imported, which may be installed, or beside the tests."""
    return Path(__file__ if file.startswith("docs/") else metric_oracle.__file__).parents[1] / file


def public_names() -> str:
    """Return the stub of the package."""
    lines = ["# Made by tests/generated.py from MODULES of __init__.py."]
    lines += [f"from metric_oracle.{module} import {name} as {name}" for name, module in metric_oracle.MODULES.items()]
    return "\n".join([*lines, "", "MODULES: dict[str, str]", "__version__: str", ""])


def registered() -> Iterator[tuple[str, str, Any, Any]]:
    """Yield of each command, in the order of the families, heading, module, Typer app and what Typer knows of it."""
    for heading, modules in FAMILIES.items():
        for module in modules:
            app = import_module(f"metric_oracle.commands.{module}").app
            for info in app.registered_commands:
                yield heading, module, app.info, info


def commands() -> str:
    """Return the list of commands, in the order of their families, and the command of each public function."""
    entries, functions = {}, {}
    for heading, module, group, info in registered():
        if group.name:
            entries[group.name] = Listed(heading, module, group.help)._asdict()
        else:
            text = " ".join(info.callback.make().__doc__.split("\n\n")[0].split())
            entries[info.name] = Listed(heading, module, text)._asdict()
        if info.callback.body.__name__ in metric_oracle.MODULES:
            functions[info.callback.body.__name__] = f"{group.name or ''} {info.name}".strip()
    return json.dumps({"commands": entries, "functions": functions}, indent=1) + "\n"


def reference() -> str:
    """Return the page with the documentation of all public names, by the folder in which they stand."""
    headings = {folder: heading for heading, folders in REFERENCE.items() for folder in folders}
    names: dict[str, list[str]] = {heading: [] for heading in REFERENCE}
    for name in sorted(metric_oracle.MODULES, key=str.lower):
        names[headings[metric_oracle.MODULES[name].partition(".")[0]]].append(name)
    parts = ["# API reference", INTRODUCTION]
    for heading, listed in names.items():
        parts += [f"## {heading}", *(f"::: metric_oracle.{name}" for name in listed)]
    return "\n\n".join(parts) + "\n"


FILES = {
    "metric_oracle/__init__.pyi": public_names,
    "metric_oracle/commands/listed.json": commands,
    "docs/api.md": reference,
}


def main() -> None:
    """Write all files."""
    for name, made in FILES.items():
        path_of(name).write_text(made(), "utf-8")


if __name__ == "__main__":
    main()

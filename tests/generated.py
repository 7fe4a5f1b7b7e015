"""Write the files of the package that are made from other files: `python tests/generated.py`.

- ``metric_oracle/__init__.pyi``: the public names, for type checkers, from `metric_oracle.MODULES`
- ``metric_oracle/commands/listed.json``: what `oracle --help` shows, from the commands
"""

import json
from importlib import import_module
from pathlib import Path

import metric_oracle
from metric_oracle.commands import FAMILIES
from metric_oracle.commands.listing import Listed

PACKAGE = Path(metric_oracle.__file__).parent


def public_names() -> str:
    """Return the stub of the package."""
    lines = ["# Made by tests/generated.py from MODULES of __init__.py."]
    lines += [f"from metric_oracle.{module} import {name} as {name}" for name, module in metric_oracle.MODULES.items()]
    return "\n".join([*lines, "", "MODULES: dict[str, str]", "__version__: str", ""])


def commands() -> str:
    """Return the list of commands, in the order of their families, and the command of each public function."""
    entries, functions = {}, {}
    for heading, modules in FAMILIES.items():
        for module in modules:
            app = import_module(f"metric_oracle.commands.{module}").app
            group = app.info.name or ""
            if group:
                entries[group] = Listed(heading, module, app.info.help)._asdict()
            for info in app.registered_commands:
                if not group:
                    text = " ".join(info.callback.make().__doc__.split("\n\n")[0].split())
                    entries[info.name] = Listed(heading, module, text)._asdict()
                if info.callback.body.__name__ in metric_oracle.MODULES:
                    functions[info.callback.body.__name__] = f"{group} {info.name}".strip()
    return json.dumps({"commands": entries, "functions": functions}, indent=1) + "\n"


FILES = {"__init__.pyi": public_names, "commands/listed.json": commands}


def main() -> None:
    """Write all files."""
    for name, made in FILES.items():
        (PACKAGE / name).write_text(made(), "utf-8")


if __name__ == "__main__":
    main()

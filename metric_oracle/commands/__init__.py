"""The commands of the command line, one module for each family of commands.

A command is the body below `@command` in its module. `listed.json`, which `tests/generated.py` writes from them, has
what `oracle --help` shows, so that no family is imported to show it.
"""

# The modules by the headings of the list, in the order in which people meet them.
FAMILIES = {
    "Begin here": ("begin", "naming"),
    "Search": ("search", "baselines"),
    "Scores": ("scoring", "samples"),
    "Tables": ("tables", "copies"),
    "Training": ("mining", "training"),
    "Radiologists": ("ratings", "survey"),
    "Pages": ("pages",),
    "Tools": ("tools",),
}

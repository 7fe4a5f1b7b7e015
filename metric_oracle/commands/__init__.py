"""The commands, a file for each family; `options` has every option once, `output` is what knows a terminal."""

"""Pages on this machine: the explorer, the survey, and the report in one file."""

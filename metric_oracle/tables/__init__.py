"""Tables that compare systems: from files of scores to means, intervals, tests and whole studies."""

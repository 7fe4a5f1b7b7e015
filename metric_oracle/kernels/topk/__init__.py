"""Selection of the k best rows, and the rule for ties."""

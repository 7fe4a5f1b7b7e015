"""One folder a metric; arrays in, arrays out. See README.md."""

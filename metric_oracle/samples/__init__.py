"""Several reports that a model wrote for one study (samples): their consensus, and the expected best of n."""

"""Made-up reports: the synthetic corpus with its annotations, error pairs, the example and the demo."""

"""Linear composites of metrics, RadCliQ among them: standardised values, weighted and summed, that predict errors."""

"""Search by one metric, or a sum of metrics, among the reports that fulfil conditions on other metrics.

An example is the report with the best RadGraph F1 among those with a CheXbert agreement of 1. The *order* is the metric
or the sum by which reports are ranked; a *condition* is a metric, an operator and a number.
"""

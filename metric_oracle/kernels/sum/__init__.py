"""Metrics that add up the scores of others: linear composites, RadCliQ among them, and sums under conditions.

A *term* is a metric with its mean, scale and weight. A *condition*, such as a RadGraph F1 of at least 0.4, is one that
every listed report fulfils. The records of such metrics are in `kernels/radcliq` or made from what users give.
"""

"""CRG, a score of abnormality labels that weights them by their frequency, and each report's contribution to it.

Source: Hamamci et al., MIDL 2025.
"""

"""CRG, the distribution-aware score of Hamamci et al., and each report's share in it."""

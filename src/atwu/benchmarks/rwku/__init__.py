"""RWKU (Jin et al. 2024)."""

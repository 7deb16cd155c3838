"""The benchmark RWKU (Jin et al. 2024): passages and probes about real people."""

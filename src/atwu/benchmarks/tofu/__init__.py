"""The benchmark TOFU (Maini et al. 2024): questions about fictitious authors."""

"""SUITE (Peleg et al. 2026): facts asked in many forms, and retain rows in tiers around them."""

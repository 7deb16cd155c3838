"""The benchmark SUITE (Peleg et al. 2026): facts with many forms of questions, and retain rows in tiers of similarity."""

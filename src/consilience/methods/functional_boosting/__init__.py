"""Boosted ensembles of weak learners (Shen et al. 2022)."""

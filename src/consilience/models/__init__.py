"""Adapters of models beyond scikit-learn, and of model files."""

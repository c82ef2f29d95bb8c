"""TOML configurations of experiments."""

"""Experiments: configurations, data, runs, diagnostics, reports and their command line."""

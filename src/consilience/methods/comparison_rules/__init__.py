"""Aggregation rules of other papers, to compare with."""

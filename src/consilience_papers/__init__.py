"""Reproductions of four papers: their tables, figures and theory, computed anew with consilience."""

"""Tables, plots and one self-contained page of any run, simulated or deployed."""

from consilience.lab.report.page import write_report
from consilience.lab.report.plots import draw_all
from consilience.lab.report.reading import read_results
from consilience.lab.report.results import Method, Results, Spread
from consilience.lab.report.tables import Comparison, as_rows, compare, left_out, table
from consilience.lab.report.verdict import Verdict, verdict

__all__ = [
    "write_report",
    "read_results",
    "Results",
    "Method",
    "Spread",
    "table",
    "as_rows",
    "compare",
    "Comparison",
    "verdict",
    "Verdict",
    "draw_all",
    "left_out",
]

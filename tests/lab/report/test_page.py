"""The page stands alone, is well-formed, and shows what users wrote as text."""

from __future__ import annotations

import base64
import re
import warnings
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from jinja2 import UndefinedError

from consilience.core.errors import InvalidInput
from consilience.lab.report import draw_all, read_results, write_report
from consilience.lab.report.html import render
from consilience.lab.report.plots import uneven

Make = Callable[..., Path]
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Tags that nest, attributes, and text outside of tags."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def html(rich_run: Path) -> str:
    path = write_report(rich_run)
    assert path == rich_run / "report.html"
    return path.read_text(encoding="utf-8")


def test_it_is_well_formed_and_needs_nothing_from_elsewhere(html: str) -> None:
    page = Page(html)
    assert page.open == []
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "object", "b", "i"}
    links = [v for _, attrs in page.tags for k, v in attrs.items() if k in ("src", "href")]
    assert links and all(link is not None and link.startswith("data:") for link in links)
    assert "url(" not in html and "@import" not in html
    assert (
        "meta",
        {"name": "viewport", "content": "width=device-width, initial-scale=1"},
    ) in page.tags


def test_every_picture_has_words_and_is_an_svg_that_fetches_nothing(html: str) -> None:
    pictures = [attrs for tag, attrs in Page(html).tags if tag == "img"]
    # rounds, teacher, its error, parties, trust of uwa (avg trusts all alike), holdings, bytes
    assert len(pictures) == 7
    for picture in pictures:
        assert picture["alt"]
        svg = base64.b64decode(str(picture["src"]).partition("base64,")[2])
        root = ElementTree.fromstring(svg)
        for element in root.iter():
            assert not str(element.tag).endswith(("script", "foreignObject"))
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith(("#", "data:"))


@pytest.mark.usefixtures("sketched")
def test_names_are_text(html: str) -> None:
    assert "<script" not in html and "<b>x" not in html and "<i>" not in html
    text = Page(html).text
    for name in ("<script>alert(1)</script>", "<b>x", "$\\frac{$", "医院", "no <i>answer</i>"):
        assert name in text


@pytest.mark.usefixtures("sketched")
def test_it_says_what_came_out(html: str) -> None:
    """uwa rises from 0.3 to 0.7 in all seeds. Holders have 0.9 + 0.1 of the weight on one class and 0.9 on
    the other, 0.95 on average; they are three of four."""
    text = Page(html).text
    assert "Exchange helped" in text
    assert "0.700 ± 0.000" in text and "0.450 ± 0.050" in text
    assert "Parties were left out of 3 exchanges (listed below)" in text
    assert "have 95% of the weight" in text and "would give them 75%" in text
    assert "Under avg, all parties have the same mean weight" in text
    assert "Predictions(100×2)" in text and "consilience run toy.toml" in text


def test_plots_are_written_as_png_and_svg(rich_run: Path) -> None:
    before = dict(matplotlib.rcParams)
    plots = draw_all(read_results(rich_run), rich_run / "plots")
    assert dict(matplotlib.rcParams) == before
    for plot in plots:
        assert (rich_run / "plots" / f"{plot.name}.svg").read_text(encoding="utf-8") == plot.svg
        png = (rich_run / "plots" / f"{plot.name}.png").read_bytes()
        assert png.startswith(b"\x89PNG") and len(png) > 5000
    with matplotlib.rc_context({"text.usetex": True}):  # as a matplotlibrc may have it
        again = draw_all(read_results(rich_run))
    assert again == plots


def test_an_unfinished_run_has_a_page(make_run: Make) -> None:
    run = make_run({"local": {}, "avg": {}}, running=[("local", 0)])
    text = Page(write_report(run).read_text(encoding="utf-8")).text
    assert "There is nothing to judge yet" in text
    assert "local with seed 0 (at round 0), avg with seed 0" in text
    assert "consilience resume" in text


def test_a_run_without_metrics_has_a_page(make_run: Make) -> None:
    run = make_run({"avg": {0: {}}})
    html = write_report(run).read_text(encoding="utf-8")
    assert "No metrics were measured" in html
    assert Page(html).open == []


@pytest.mark.usefixtures("sketched")
def test_regression_speaks_of_ranges(make_run: Make) -> None:
    run = make_run({"avg": {0: {"mse": [[4.0, 2.0], [1.0, 1.0]], "r2": [[0.1, 0.1]] * 2}}})
    text = Page(write_report(run).read_text(encoding="utf-8")).text
    assert "MSE" in text and "R²" in text and "range of values" in text


def test_no_template_lets_markup_of_values_through() -> None:
    packages = ("consilience.lab.report", "consilience.sites.pages")
    folders = [Path(str(resources.files(one) / "templates")) for one in packages]
    pages = [file.read_text("utf-8") for folder in folders for file in folder.rglob("*.html")]
    assert len(pages) >= 9
    assert not any(re.search(r"safe|autoescape|<[^>]*=\s*{", page) for page in pages)


def test_a_variable_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'found' is undefined"):
        render("heterogeneity.html", title="x")


def test_who_took_part_in_which_round(make_run: Make) -> None:
    """Three parties: all in the set-up and in rounds 1 and 2, then one is late, then one is not asked."""
    from consilience.core.networks import Delivery

    def delivery(party: str, round: int, tasks: str, status: str = "ok", why: str = "") -> Delivery:
        return Delivery(party, round, tasks, status, "", 10, 9, 0.1, why)

    asked = [delivery(p, r, "PredictPublic") for r in range(3) for p in "abc"]
    asked += [delivery(p, r, "PredictPublic") for r in (3, 4) for p in "ab"]
    asked += [delivery("c", 3, "Distill", "late", "no <i>answer</i>")]
    asked += [delivery("c", 4, "Evaluate", "late", "never mind")]
    run = make_run(
        {"avg": {0: {}}},
        parties="abc",
        rows=[(1, 1)] * 3,
        protocol={"rounds": 4},
        deliveries={"avg": asked},
    )
    found = read_results(run).attendance
    assert [(one.first, one.last, one.present) for one in found] == [
        (0, 2, ("a", "b", "c")),
        (3, 3, ("a", "b")),
        (4, 4, ("a", "b")),
    ]
    assert [dict(one.left_out) for one in found] == [
        {},
        {"c": "late at Distill: no <i>answer</i>"},
        {},
    ]
    text = " ".join(Page(write_report(run).read_text(encoding="utf-8")).text.split())
    assert "0 to 2all 3–" in text
    assert "2: a, bc: late at Distill: no <i>answer</i>" in text


def test_long_lists_of_failures_are_cut(make_run: Make) -> None:
    from consilience.core.networks import Delivery

    late = Delivery("a", 1, "Distill", "late", "", 10, 0, 1.0, "no answer")
    run = make_run({"avg": {0: {}}}, deliveries={"avg": [late] * 60})
    html = write_report(run).read_text(encoding="utf-8")
    assert html.count("no answer") == 50 + 1  # and once where it says who took part
    assert re.search("and 10 more in the ledger", html)


def test_no_run_no_page(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not a run folder"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_class_of_no_public_row_says_nothing_of_trust() -> None:
    nan = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not uneven(np.array([[0.5, nan], [0.5, nan]]))
        assert uneven(np.array([[0.9, nan], [0.1, nan]]))
        assert not uneven(np.array([[nan, nan]])) and not uneven(None)

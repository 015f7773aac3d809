"""The documents have the tables and plots of the data in benchmarks/figures."""

import re

import pandas as pd
import pytest

from benchmarks.documents import figures, pages, pictures, tables
from benchmarks.documents.text import case_text, digits, markdown
from pyclgemm.families.registry import FAMILIES

PAGES = {path: path.read_text("utf-8") for path in pages.pages()}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tables_are_those_of_the_data(path):
    assert pages.filled(PAGES[path], tables.TABLES) == PAGES[path], (
        "run python -m benchmarks.documents --tables"
    )


def test_every_table_and_plot_is_in_a_page():
    used = [name for text in PAGES.values() for name in pages.table_names(text)]
    assert sorted(used) == sorted(tables.TABLES)
    ladders = "".join(path.read_text("utf-8") for path in figures.FIGURES.rglob("*.md"))
    everything = ladders + "".join(PAGES.values())
    shown = set(re.findall(r"_static/(?:plots/|drawings/)?([\w-]+)\.svg\)", everything))
    assert set(pictures.pictures()) <= shown
    static = figures.ROOT / "docs" / "_static"
    drawn = {path.stem for path in static.rglob("*.svg")}
    # The page of kernel parameters is made from the families.
    assert drawn == shown | {f"family-{name}" for name in FAMILIES}


def test_the_index_has_every_file_and_its_page_is_current():
    files = {path.relative_to(figures.FIGURES).as_posix() for path in _data()}
    assert set(figures.index()["file"]) == files
    assert (figures.FIGURES / "README.md").read_text("utf-8") == figures.index_page()


def _data():
    return (path for path in figures.FIGURES.rglob("*.csv") if path.name != "index.csv")


def test_every_file_is_referred_to():
    sources = "".join(
        path.read_text("utf-8") for path in (figures.ROOT / "benchmarks/documents").glob("*.py")
    )
    everything = sources + "".join(PAGES.values())
    for path in _data():
        assert path.relative_to(figures.FIGURES).as_posix().removesuffix(".csv") in everything


def test_ratios_are_those_of_the_latest_run_of_both():
    rows = [  # contender, date, GFLOPS
        ("pyclgemm", "1", 10.0), ("cuBLAS", "1", 5.0), ("CLBlast", "1", 2.0),
        ("pyclgemm", "2", 12.0), ("cuBLAS", "2", 4.0), ("pyclgemm", "3", 99.0),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["contender", "date", "gflops"])
    frame = frame.assign(case="8x8x8", m=8, n=8, k=8)
    assert figures.ratios(frame, "cuBLAS")["8x8x8"] == 3.0
    assert figures.ratios(frame, "CLBlast")["8x8x8"] == 5.0
    assert figures.speeds(frame, "pyclgemm").loc["8x8x8", "pyclgemm"] == 99e9


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (case_text("35x8457x2560:TT"), "35x8457x2560, both transposed"),
        (digits(0.04398), "0.0440"), (digits(99.96), "100"), (digits(12345.0), "12300"),
        (markdown(("a", ">b"), [("1", "2")]), "| a | b |\n|---|---:|\n| 1 | 2 |"),
    ],
)  # fmt: skip
def test_text(text, wanted):
    assert text == wanted

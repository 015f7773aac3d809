"""The raw data in `benchmarks/figures`, and their index."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "benchmarks" / "figures"


@functools.cache
def load(name: str) -> pd.DataFrame:
    """Read a file of `FIGURES`; `name` has no suffix, such as "h100/2026-11-22-layers"."""
    return pd.read_csv(FIGURES / f"{name}.csv", dtype={"step": str, "hidden": str})


def index() -> pd.DataFrame:
    """Read the index: a row for each file, with what it shows."""
    return pd.read_csv(FIGURES / "index.csv")


def index_page() -> str:
    """Write the index as a page: device, driver, dates and commands are those in the files."""
    lines = [
        "# Figures",
        "",
        "Raw data of the measurements, by device and date. `python -m benchmarks.documents` draws",
        "the plots and writes the tables of the documents, and this page, from them. `index.csv`",
        "says what each file shows. To add a file, copy the CSV file that a benchmark wrote, and",
        "add its row there.",
        "",
        "| file | device | driver | date | rows | shows | command |",
        "|---|---|---|---|---:|---|---|",
    ]
    for name, shows in index().itertuples(index=False):
        frame = load(name.removesuffix(".csv"))
        dates = _known(frame, "date").str[:10]
        commands = list(dict.fromkeys(_known(frame, "command")))
        command = f"`{_shortened(commands[0])}`" if commands else ""
        if len(commands) > 1:
            command += f" and {len(commands) - 1} more, in the file"
        cells = [
            f"[{name}]({name})",
            *("; ".join(dict.fromkeys(_known(frame, column))) for column in ("device", "driver")),
            "; ".join(dict.fromkeys(dates)), str(len(frame)), shows, command,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _known(frame: pd.DataFrame, column: str) -> pd.Series:
    return frame[column].dropna() if column in frame else pd.Series(dtype=str)


def _shortened(command: str) -> str:
    """Leave out all but the first of many shapes."""
    return re.sub(r"(--shapes '?[^ ,']+),[^ ]+", r"\1,...", command)


def speeds(frame: pd.DataFrame, *contenders: str) -> pd.DataFrame:
    """Tabulate FLOPS of contenders by case, from the latest run in which all of them took part.

    The result has the columns m, n and k, and one for each contender. A case without such a run is
    left out.
    """
    rows = frame[frame["contender"].isin(contenders)]
    table = rows.pivot_table(
        index=["case", "date"], columns="contender", values="gflops", aggfunc="median", sort=False
    )
    table = 1e9 * table.reindex(columns=list(contenders)).dropna().sort_index(level="date")
    latest = table.groupby(level="case").last()
    sizes = rows.drop_duplicates("case").set_index("case")[["m", "n", "k"]]
    return sizes.join(latest, how="inner")


def ratios(frame: pd.DataFrame, reference: str, own: str = "pyclgemm") -> pd.Series:
    """Return the speed over a reference's by case, from the latest run of both."""
    table = speeds(frame, own, reference)
    return table[own] / table[reference]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.log(np.asarray(list(values), dtype=float)).mean()))

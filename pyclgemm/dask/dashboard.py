"""A page of Dask's dashboard: for each device the part of the time that it was busy, and with what.

It is imported only where a scheduler has a dashboard, as it needs bokeh.
"""

from __future__ import annotations

import time
from typing import Any

from bokeh.models import ColumnDataSource, FactorRange, Range1d
from bokeh.plotting import figure
from distributed.dashboard import scheduler as pages
from distributed.dashboard.components import DashboardComponent
from distributed.dashboard.components.scheduler import individual_doc

from .busy import BUSY, PRODUCT, TRANSFER
from .placement import RESOURCE

#: The address of the page, from which Dask also makes its name.
PAGE = "/individual-pyclgemm-devices"
_SHOWN = {BUSY: "lightgrey", TRANSFER: "orange", PRODUCT: "seagreen"}


class DeviceBars(DashboardComponent):  # type: ignore[misc]
    """Three bars a device: the parts of the last seconds, as workers reported them."""

    def __init__(self, scheduler: Any, **options: Any) -> None:
        self._scheduler = scheduler
        self._before: dict[str, tuple[float, dict[str, Any], list[float]]] = {}
        self.source = ColumnDataSource({"bar": [], "part": [], "color": []})
        self._bars = FactorRange()
        self.root = figure(
            title="Devices: part of the time", y_range=self._bars,
            x_range=Range1d(start=0, end=1), tools="", **options,
        )  # fmt: skip
        self.root.hbar(y="bar", right="part", color="color", height=0.9, source=self.source)

    def update(self) -> None:
        """Read what the workers reported last."""
        bars, parts = [], []
        for address, worker in self._scheduler.workers.items():
            report = worker.metrics.get(RESOURCE)
            if report:
                name = f"{worker.name}: {report['device']}"
                bars += [(name, activity) for activity in _SHOWN]
                parts += self._parts(address, report)
        self._bars.factors = bars
        colors = list(_SHOWN.values()) * (len(bars) // len(_SHOWN))
        self.source.data = {"bar": bars, "part": parts, "color": colors}

    def _parts(self, address: str, report: dict[str, Any]) -> list[float]:
        """The part of each activity since the report before."""
        now = time.monotonic()
        since, before, parts = self._before.get(address, (now, report, [0.0] * len(_SHOWN)))
        if report is not before:
            spent = (report.get(one, 0.0) - before.get(one, 0.0) for one in _SHOWN)
            parts = [min(1.0, one / (now - since)) for one in spent]
        if report is not before or address not in self._before:
            self._before[address] = now, report, parts
        return parts


def add_page() -> None:
    """Have the schedulers that this process starts from now on show the page."""
    pages.applications[PAGE] = individual_doc(DeviceBars, 500)

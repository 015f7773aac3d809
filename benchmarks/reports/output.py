"""How an error of writing names the files of the benchmarks."""

from __future__ import annotations

from pyclgemm.host.files import Purpose

RESULTS = Purpose("the results", "name another place for them on the command line")

"""What the files of benchmarks are to errors of writing."""

from __future__ import annotations

from pyclgemm.host.files import Purpose

RESULTS = Purpose("the results", "name another place for them on the command line")

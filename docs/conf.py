"""Sphinx builds these pages: docs/README.md has the command."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent)]

# The notebooks tune: their records go to a folder of the build, not to the database of the user.
_records = tempfile.mkdtemp(prefix="pyclgemm-docs-")
atexit.register(shutil.rmtree, _records, ignore_errors=True)
os.environ["XDG_DATA_HOME"] = _records
os.environ.pop("PYCLGEMM_DATABASES", None)
os.environ["PYTHONPATH"] = str(DOCS.parent)
# What their commands print fits a page, and has neither colours nor a sign that moves.
os.environ.update(COLUMNS="100", TTY_COMPATIBLE="0")

import pyclgemm  # noqa: E402

project = "pyclgemm"
author = "The authors of pyclgemm"
project_copyright = "the authors of pyclgemm"
release = pyclgemm.__version__
version = release.partition("+")[0]

extensions = [
    "sphinx.ext.autosummary",
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_nb",
    "sphinx_click",
    "from_code",
    "repository",
]
exclude_patterns = ["_build", "README.md", "_templates"]
templates_path = ["_templates"]

default_role = "py:obj"
smartquotes = False  # they would change --option

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4

# Notebooks are pages in Markdown; a cell that raises an error ends the build.
nb_execution_mode = "auto"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

autosummary_generate = True
autodoc_typehints = "none"  # docstrings state types
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
# A section that numpydoc does not know, is out of order or is empty is a warning.
numpydoc_validation_checks = {"GL06", "GL07", "PR02", "RT03", "YD01"}

html_theme = "furo"
html_title = f"pyclgemm {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_theme_options = {
    "source_repository": "https://github.com/pyclgemm/pyclgemm",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_show_sourcelink = False

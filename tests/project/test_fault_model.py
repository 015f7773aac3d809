"""The page of the fault model names tests and campaigns that exist, and its links lead to files."""

import re

import pytest

from tests.support.system import ROOT

DOCS = ROOT / "docs"
PAGE = (DOCS / "fault-model.md").read_text(encoding="utf-8")


def named_tests():
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))


@pytest.mark.parametrize("named", named_tests())
def test_a_test_that_the_page_names_exists(named):
    file, _, function = named.partition("::")
    defined = re.findall(r"^def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.M)
    assert function in defined if function else defined


def test_campaigns_that_the_page_names_exist():
    from tests.fuzz.campaign import CAMPAIGNS

    cells = [line.rsplit("|", 2)[1] for line in PAGE.splitlines() if line.startswith("|")]
    named = {name for cell in cells for name in re.findall(r'"(\w+)"', cell)}
    assert named
    assert named <= set(CAMPAIGNS)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).is_file(), link

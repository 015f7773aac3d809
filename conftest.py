"""Names for the examples of docstrings: ``python -m pytest --doctest-modules pyclgemm``."""

import pytest


@pytest.fixture(autouse=True)
def names_of_examples(request):
    """What an example finds without an import; a test in a function has nothing of it."""
    if isinstance(request.node, pytest.DoctestItem):
        from tests.support.examples import names

        request.getfixturevalue("doctest_namespace").update(names())

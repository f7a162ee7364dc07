"""The code of docs/python.md does what the page says."""

import contextlib
import io
import pathlib
import re

import meshift
import pytest

FOLDER = pathlib.Path(__file__).parents[2]
PAGE = (FOLDER / "docs" / "python.md").read_text(encoding="utf-8")


def blocks():
    """Each Python block, with the plain block after it, its output."""
    return re.findall(r"```python\n(.*?)```\n(?:\n```\n(.*?)```\n)?", PAGE, re.S)


def test_code():
    pytest.importorskip("numpy")
    scope = {}
    assert len(blocks()) > 3
    for code, shown in blocks():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, scope)
        assert printed.getvalue() == shown


def test_the_table_has_every_name():
    table = PAGE.split("| name | is |")[1].split("\n\n")[0]
    for name in meshift.__all__:
        assert re.search(rf"\b{name}\b", table), name


def test_links():
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE):
        assert (FOLDER / "docs" / link).exists(), link

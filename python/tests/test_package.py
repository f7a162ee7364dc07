"""The package as a whole: what it imports, its names, its types, a library that is not there."""

import os
import pathlib
import subprocess
import sys

import meshift
import pytest

SOURCES = pathlib.Path(meshift.__file__).parent
FOLDER = pathlib.Path(__file__).parents[1]


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES.parent), **environment},
    )


def test_imports_little():
    code = (
        "import sys; before = set(sys.modules); import meshift; print(*set(sys.modules) - before)"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr
    names = {name.split(".")[0] for name in done.stdout.split()}
    for heavy in ("numpy", "torch", "json", "dataclasses", "inspect", "subprocess", "importlib"):
        assert heavy not in names
    assert "ctypes" in names


def test_names():
    assert set(meshift.__all__) <= set(dir(meshift))
    for name in meshift.__all__:
        assert getattr(meshift, name).__doc__
        assert getattr(meshift, name).__module__.startswith("meshift.")
    assert meshift.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        meshift.nope  # noqa: B018
    with pytest.raises(ImportError):
        from meshift import nope  # noqa: F401


def test_local_is_imported_where_it_is_used():
    pytest.importorskip("numpy")
    done = run("import meshift; print(meshift.local.run.__name__)")
    assert done.stdout == "run\n", done.stderr


def test_the_version_is_that_of_the_header():
    header = FOLDER.parent / "include" / "meshift" / "version.h"
    assert f'#define MESHIFT_VERSION "{meshift.__version__}"' in header.read_text()


def test_a_library_that_is_not_there():
    done = run("import meshift", MESHIFT_LIBRARY="/does/not/exist.so")
    assert "ImportError: meshift's library cannot be loaded: /does/not/exist.so" in done.stderr


def test_without_numpy():
    done = run("import sys; sys.modules['numpy'] = None; import meshift.local")
    assert "ImportError: meshift.local needs NumPy: pip install meshift[numpy]" in done.stderr


def test_types():
    pytest.importorskip("mypy")
    pytest.importorskip("numpy")
    files = [
        str(path) for name in ("meshift", "examples") for path in (FOLDER / name).rglob("*.py")
    ]
    assert len(files) > 20
    done = subprocess.run(
        [sys.executable, "-m", "mypy", f"--cache-dir={os.devnull}", *files],
        capture_output=True,
        text=True,
        cwd=FOLDER.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_thing_has_a_docstring():
    import ast

    for path in SOURCES.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and path.name != "_c.py":
                overload = any(ast.dump(d).count("'overload'") for d in node.decorator_list)
                if node in tree.body and not node.name.startswith("_") and not overload:
                    assert ast.get_docstring(node), node.name

"""The examples, and the figures of the benchmark of imports."""

import pathlib
import runpy
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[1]


def test_plan(capsys):
    runpy.run_path(str(FOLDER / "examples" / "plan.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "promise ordered: kept" in printed
    assert "refused by the rule target" in printed
    assert "\nper-dim: " in printed


def test_why_replicas_differ(capsys):
    pytest.importorskip("numpy")
    example = runpy.run_path(str(FOLDER / "examples" / "why_replicas_differ.py"))
    example["on_the_local_engine"]()
    printed = capsys.readouterr().out
    chained, ours = printed.split("Meshift's plan")
    assert "rank 0's: [0, 0, 0, 0, " in chained
    assert "rank 0's: [0, 0, 0, 0, 0, 0, 0, 0]" not in chained
    assert "rank 0's: [0, 0, 0, 0, 0, 0, 0, 0]" in ours
    assert "adding in order: True" in ours
    page = (FOLDER.parent / "docs" / "why_replicas_differ.md").read_text(encoding="utf-8")
    assert printed in page


def test_import_time():
    script = FOLDER / "bench" / "import_time.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ms over `python -c pass`" in done.stdout
    done = subprocess.run([sys.executable, script, "0"], capture_output=True, text=True)
    assert done.returncode == 1

"""Formats byte counts, times and tables as text, and tables as HTML for notebooks.

A number is in the largest unit of which it is at least 1, with one decimal unless that is 0. A unit
of bytes is 1024 times the one before (B to EiB), a unit of time 1000 times (ns to s). A header that
begins with ">" aligns its column right.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    Rows = Sequence[Sequence[str]]


def bytes_text(count: int) -> str:
    """1536 is "1.5 KiB"."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{_digits(value)} {unit}"


def time_text(ns: int) -> str:
    """1500 is "1.5 us"."""
    value, unit = float(ns), "ns"
    for larger in ("us", "ms", "s"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text_table(headers: Sequence[str], rows: Rows) -> str:
    """Columns with two spaces between them. Every line ends in a newline."""
    right = [header.startswith(">") for header in headers]
    lines = [[header.lstrip(">") for header in headers], *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    text = ""
    for line in lines:
        cells = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, right)
        )
        text += "  ".join(cells).rstrip() + "\n"
    return text


def html_table(caption: str, headers: Sequence[str], rows: Rows, notes: Sequence[str]) -> str:
    """A table with a line above and lines below it. All text is escaped."""
    from html import escape

    align = ["right" if header.startswith(">") else "left" for header in headers]
    lines = [[header.lstrip(">") for header in headers], *rows]
    html = f"<table><caption>{escape(caption)}</caption>"
    for i, line in enumerate(lines):
        tag = "td" if i else "th"
        html += "<tr>"
        for cell, side in zip(line, align):
            html += f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>'
        html += "</tr>"
    return html + "</table>" + "".join(f"<div>{escape(note)}</div>" for note in notes if note)

"""Runs the packaged command in place of this process: `python -m meshift plan`, `meshift plan`.

The environment variable MESHIFT_COMMAND names another program. Exits with a message and code 1 if
the command cannot be run.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def command() -> str:
    """The path of the packaged command."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return os.environ.get("MESHIFT_COMMAND") or os.path.join(folder, "bin", "meshift")


def main() -> NoReturn:
    """Replaces this process by the command, with the same arguments."""
    path = command()
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"meshift: the command cannot be run: {path}: {error.strerror}")


if __name__ == "__main__":
    main()

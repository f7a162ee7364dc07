"""Prints the extra time of `import meshift` over `python -c pass`, in milliseconds.

    python python/bench/import_time.py [LIMIT]

Each is the best of 10 alternating runs. Exits with 1 above the limit. The limit is for a machine
whose `python -c pass` takes up to 15 ms; on a slower one it is larger in proportion.
"""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 10
USUAL_MS = 15  # of `python -c pass`


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> int:
    codes = ("pass", "import meshift")
    runs = [[seconds(code) for code in codes] for _ in range(RUNS + 1)][1:]
    without, with_meshift = (min(times) * 1e3 for times in zip(*runs))
    took = with_meshift - without
    print(f"import meshift: {took:.1f} ms over `python -c pass` ({without:.1f} ms), best of {RUNS}")
    return int(len(sys.argv) > 1 and took > float(sys.argv[1]) * max(1, without / USUAL_MS))


if __name__ == "__main__":
    sys.exit(main())

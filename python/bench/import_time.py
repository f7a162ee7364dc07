"""Prints the extra time of `import meshift` over `python -c pass`, in milliseconds.

    python python/bench/import_time.py [LIMIT]

Each is the best of 10 alternating runs. Exits with 1 above the limit, unless `import asyncio` takes
longer than `import meshift`: then the machine is slow.
"""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 10


def seconds(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main() -> int:
    codes = ("pass", "import meshift", "import asyncio")
    runs = [[seconds(code) for code in codes] for _ in range(RUNS + 1)][1:]
    without, with_meshift, with_asyncio = (min(times) * 1e3 for times in zip(*runs))
    took, asyncio_took = with_meshift - without, with_asyncio - without
    print(f"import meshift: {took:.1f} ms over `python -c pass` ({without:.1f} ms), best of {RUNS}")
    print(f"import asyncio: {asyncio_took:.1f} ms")
    return int(len(sys.argv) > 1 and took > float(sys.argv[1]) and took > asyncio_took)


if __name__ == "__main__":
    sys.exit(main())

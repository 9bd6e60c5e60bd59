"""Prints the CPU time for `import assay_client` and `import httpx2`, and their ratio.

python scripts/import_cost.py
"""

from __future__ import annotations

import subprocess
import sys

RUNS = 15


def cpu_seconds(statement: str) -> float:
    """Returns the CPU time that a new process takes when it runs one statement."""
    code = f"{statement}\nimport resource as r\nu = r.getrusage(r.RUSAGE_SELF)\n"
    code += "print(u.ru_utime + u.ru_stime)"
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def main() -> None:
    # Alternating runs see the same machine load; the shortest is the least disturbed.
    runs = [(cpu_seconds("import assay_client"), cpu_seconds("import httpx2")) for _ in range(RUNS)]
    own, of_httpx2 = (min(times) for times in zip(*runs, strict=True))
    print(f"assay {own:.3f} s, httpx2 {of_httpx2:.3f} s, ratio {own / of_httpx2:.2f}")


if __name__ == "__main__":
    main()

"""Changes every byte of some files, and every value in a receipt's JSON, and prints the step at which verify.py fails for each
change: {"<file>:<byte or path>": "<step>"}. The first argument is a JSON object: `files` (the files to change), `receipt` (the
receipt's file), and `arguments` (for verify.py)."""

import contextlib
import io
import json
import sys
from pathlib import Path

import verify


def other(byte):
    """Returns another byte; for letters and digits another letter or digit, so that the encoding stays valid."""
    for first, last in (b"09", b"az", b"AZ"):
        if first <= byte <= last:
            return first if byte == last else byte + 1
    return byte ^ 1


def failing_step(arguments):
    """Returns the step at which the verification fails, or "ok"."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        verify.main(arguments)
    failed = [line for line in out.getvalue().splitlines() if ": FAILED" in line]
    return failed[0].partition(":")[0] if failed else "ok"


def leaves(value, path=()):
    """Yields the path to every value that is no object or array."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def changed(value):
    if isinstance(value, str):
        return value + "x"
    return 0 if value is None else value + 1


def main():
    task = json.loads(sys.argv[1])
    steps = {}
    for name in task["files"]:
        path = Path(name)
        original = path.read_bytes()
        for at, byte in enumerate(original):
            path.write_bytes(original[:at] + bytes([other(byte)]) + original[at + 1 :])
            steps[f"{path.name}:{at}"] = failing_step(task["arguments"])
        path.write_bytes(original)
    receipt = Path(task["receipt"])
    original = receipt.read_text("utf-8")
    for path in leaves(json.loads(original)):
        document = json.loads(original)
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = changed(inner[path[-1]])
        receipt.write_text(json.dumps(document), "utf-8")
        steps["receipt:" + ".".join(map(str, path))] = failing_step(task["arguments"])
    receipt.write_text(original, "utf-8")
    print(json.dumps(steps))


if __name__ == "__main__":
    main()

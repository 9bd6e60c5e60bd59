"""Builds the wheel without comments and internal docstrings, and with narrow indentation.

Its size has a limit. Every line keeps its number, so that tracebacks fit the repository.
"""

from __future__ import annotations

import ast
import io
import tempfile
import tokenize
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The modules whose docstrings are the package's documentation.
DOCUMENTED = {
    *("__init__.py", "_errors.py", "_items.py", "_progress.py", "_raw.py", "_results.py"),
    *("_score.py", "aio.py", "client.py"),
    *("_async_objects.py", "_async_resources.py", "_objects.py", "_resources.py"),
}
# The only functions in these modules that callers use.
FUNCTIONS = ("aevaluate", "evaluate", "score")
# The classes in these modules that callers do not see.
INTERNAL = ("AsyncConnection", "Connection", "PredictionMeter", "UploadMeter")
Place = tuple[int, int]


class CustomBuildHook(BuildHookInterface[Any]):
    """Replaces the wheel's modules by their shorter forms."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the modules to the wheel. An editable installation keeps the originals."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        for path in sorted((Path(self.root) / "src" / "assay_client").glob("*.py")):
            short = Path(self._folder.name) / path.name
            source = path.read_text(encoding="utf-8")
            short.write_text(
                shorten(source, is_documented=path.name in DOCUMENTED), encoding="utf-8"
            )
            build_data["force_include"][str(short)] = f"assay_client/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Deletes the shorter forms."""
        if version != "editable":
            self._folder.cleanup()


def shorten(source: str, *, is_documented: bool) -> str:
    """Returns a module without comments, and without docstrings that nobody outside reads."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    ranges: list[tuple[Place, Place]] = [
        (token.start, token.end) for token in tokens if token.type == tokenize.COMMENT
    ]
    module = ast.parse(source)
    internal = {
        node
        for part in module.body
        if isinstance(part, ast.ClassDef) and (part.name in INTERNAL or part.name[0] == "_")
        for node in ast.walk(part)
    }
    for node in ast.walk(module):
        name = str(getattr(node, "name", None) or "")
        is_internal = name.startswith("_") and not name.startswith("__")
        if node in module.body and not isinstance(node, ast.ClassDef):
            is_internal = name not in FUNCTIONS
        is_internal = is_internal or node in internal
        body: Any = getattr(node, "body", None)
        # A body that is only a docstring needs it.
        if (is_documented and not is_internal) or not isinstance(body, list) or len(body) < 2:
            continue
        for statement in body:
            text: Any = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(text, ast.Constant):
                start = (statement.lineno, statement.col_offset)
                end = (statement.end_lineno or 0, statement.end_col_offset or 0)
                ranges.append((start, end))
    lines = source.splitlines()
    # From the end, so that the places before a range stay valid.
    for (first, start), (last, end) in sorted(ranges, reverse=True):
        kept = lines[last - 1].encode()[end:].decode() if first != last else ""
        if first == last:
            line = lines[first - 1]
            lines[first - 1] = line[:start] + line[end:]
        else:
            lines[first - 1] = lines[first - 1][:start]
            lines[first:last] = [""] * (last - first - 1) + [kept]
    texts = {line for token in tokens for line in range(token.start[0] + 1, token.end[0] + 1)}
    lines = [
        line if number in texts else line[(len(line) - len(line.lstrip())) // 4 * 3 :]
        for number, line in enumerate(lines, 1)
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)

"""Reads the commands in the operator's guide, so that the tests run its very words."""

import re
import textwrap

from control_plane import ROOT

GUIDE = ROOT / "docs/operators.md"


def _section(title):
    parts = re.split(r"^#{2,4} (.*)$", GUIDE.read_text(encoding="utf-8"), flags=re.M)
    (content,) = [content for found, content in zip(parts[1::2], parts[2::2]) if found == title]
    return content


def block(section, language, contains=""):
    """Returns the first code block in a section with this text in it, without its indentation."""
    blocks = re.findall(rf"^( *)```{language}\n(.*?)^\1```", _section(section), re.S | re.M)
    found = [textwrap.dedent(code) for _, code in blocks if contains in code]
    assert found, f"the section {section!r} of {GUIDE.name} has no such block"
    return found[0]


def line(section, language, contains):
    """Returns the one line in a section's blocks with this text in it, with its continuation lines."""
    code = block(section, language, contains).replace("\\\n", " ")
    (found,) = [one for one in code.splitlines() if contains in one]
    return found


def inline(section, contains):
    """Returns the one command with this text in a section's sentences."""
    sentences = re.sub(r"^( *)```.*?^\1```", "", _section(section), flags=re.S | re.M)
    (found,) = [code for code in re.findall(r"`([^`]+)`", sentences) if contains in code]
    return found


def fill(text, *values):
    """Replaces the placeholders `…` in their order."""
    parts = text.split("…")
    assert len(parts) == len(values) + 1, f"{len(parts) - 1} placeholders for {len(values)} values in {text!r}"
    return "".join(part + value for part, value in zip(parts, [*values, ""]))

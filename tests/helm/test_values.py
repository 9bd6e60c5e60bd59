"""Checks that values.yaml and its schema agree, and that the schema is complete."""

import json

import pytest
import yaml

import chart

VALUES = yaml.safe_load((chart.CHART / "values.yaml").read_text())
SCHEMA = json.loads((chart.CHART / "values.schema.json").read_text())
# Objects that Kubernetes and others validate, and the values of a parent chart.
OPEN = {
    "affinity", "behavior", "delivererExtraEgress[]", "engineExtraEgress[]", "extraEgress[]", "extraIngress[]", "extraObjects[]", "extraVolumes[]", "global", "labelSelector",
    "metrics[]", "metricRelabelings[]", "namespaceSelector", "podSelector", "receiptLogExtraEgress[]", "relabelings[]", "valueFrom", "volumes[]",
}  # fmt: skip


def resolved(schema):
    """Returns the schema with its references resolved, which must be in the same file."""
    for part in schema.get("allOf", []):
        schema = {**resolved(part), **schema}
    if "$ref" in schema:
        assert schema["$ref"].startswith("#/definitions/"), schema["$ref"]
        return resolved({**SCHEMA["definitions"][schema["$ref"].removeprefix("#/definitions/")], **{k: v for k, v in schema.items() if k != "$ref"}})
    return schema


def walk(schema, path=()):
    schema = resolved(schema)
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, (*path, name))
    if "items" in schema:
        yield from walk(schema["items"], (*path[:-1], f"{path[-1]}[]") if path else ("[]",))


def keys(values, schema, path=()):
    """Yields keys that are only in the values or only in the schema."""
    schema = resolved(schema)
    if "properties" not in schema or not isinstance(values, dict):
        return
    if path and not path[0].startswith("$"):
        yield from ((*path, name) for name in values if name not in schema["properties"])
    for name, inner in schema["properties"].items():
        if name in values:
            yield from keys(values[name], inner, (*path, name))
        elif (*path, name)[-2] not in {"limits", "requests", "startupProbe", "livenessProbe", "readinessProbe", "timeouts"} | {
            "podSecurityContext", "seccompProfile", "securityContext", "capabilities",
        }:  # fmt: skip
            yield (*path, name)


def test_values_and_schema_have_same_keys():
    assert set(VALUES) == set(SCHEMA["properties"])
    assert list(keys({"values": VALUES}, {"properties": {"values": SCHEMA}})) == []


def test_every_value_has_a_description():
    leaves = 0
    for path, schema in walk(SCHEMA):
        if path and not path[-1].endswith("[]"):
            assert len(schema.get("description", "")) >= 5, path
            leaves += "properties" not in schema
    assert leaves > 230


def test_schema_rejects_unknown_keys():
    for path, schema in walk(SCHEMA):
        kinds = schema.get("type") if isinstance(schema.get("type"), list) else [schema.get("type")]
        if "object" in kinds and (not path or path[-1] not in OPEN):
            assert "additionalProperties" in schema, path
            assert schema["additionalProperties"] in (False, {"type": "string"}), path


def test_schema_has_only_local_references():
    text = json.dumps(SCHEMA)
    assert '"$id"' not in text
    refs = [part.split('"')[0] for part in text.split('"$ref": "')[1:]]
    assert refs and all(ref.startswith("#/definitions/") for ref in refs)


def test_lines_have_at_most_130_characters():
    lines = (chart.CHART / "values.yaml").read_text().splitlines()
    assert all(len(line) <= 130 for line in lines)


def test_chart_can_set_every_setting():
    """Each binary's setting is in the rendered chart for some value set."""
    names, secrets = chart.settings()
    given = {variable["name"] for name in [None, *chart.SETS] for _, spec in chart.ours(chart.objects(name)) for variable in spec["containers"][0]["env"]}
    # The chart gives the API no keys, so it needs no second role to sign with.
    names -= {"ASSAY_LOG_DATABASE_URL"}
    wanted = {f"{name}_FILE" if name in secrets else name for name in names}
    assert wanted <= given, wanted - given


@pytest.mark.parametrize("name", chart.SETS)
def test_examples_start_with_a_comment(name):
    text = chart.SETS[name].read_text()
    assert chart.SETS[name].parent.name == "matrix" or text.startswith("# ")

"""The package covers the whole OpenAPI document."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import assay_client as assay
from assay_client import _models as models
from assay_client import _resources
from assay_client._errors import ERRORS
from assay_client._tables import OPERATIONS

SOURCES = Path(assay.__file__).parent

# Properties and parameters whose argument has another name, or that the client sets itself.
RENAMED = {"limit": "page_size", "suite_id": "suite", "from": "first", "to": "last"}
# Publishers use the program `assay`, which sends them. The wheel has no room for their methods.
PUBLISHING = {
    *("createDraft", "listDrafts", "getDraft", "uploadDraftPart", "checkDraft", "listDraftItems"),
    *("publishDraft", "deleteDraft", "updateSuite", "listSuiteVersions", "createErratum"),
    *("listGrants", "createGrant", "deleteGrant", "acceptGrant", "listSubmitters", "retireSuite"),
    *("removeEntry", "restoreEntry"),
}
# The client pages through these listings itself.
INTERNAL = {
    ("listSuites", "cursor"),
    ("listSuiteItems", "limit"),
    *((f"list{name}", "cursor") for name in ("SuiteItems", "JobItems", "Keys", "Members")),
    *((f"list{name}", "cursor") for name in ("Invites", "Domains")),
    ("getBoard", "cursor"),
}


def calls_by_operation(module: str) -> dict[str, ast.AST]:
    """Returns a module's function that names each operation id."""
    found: dict[str, ast.AST] = {}
    for name in (module, "_items.py", "_jobs.py", "_upload.py", "_objects.py"):
        for node in ast.walk(ast.parse((SOURCES / name).read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and part.value in OPERATIONS:
                        found.setdefault(str(part.value), node)
    return found


def test_operations_equal_document(openapi: dict[str, Any]) -> None:
    expected = {
        operation["operationId"]: (method.upper(), path)
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    }
    assert expected == OPERATIONS


@pytest.mark.parametrize("shell", ["client.py", "aio.py"])
def test_every_operation_has_method(openapi: dict[str, Any], shell: str) -> None:
    resources = "_resources.py" if shell == "client.py" else "_async_resources.py"
    found = {**calls_by_operation(shell), **calls_by_operation(resources)}
    missing = {
        operation["operationId"]
        for methods in openapi["paths"].values()
        for operation in methods.values()
    } - set(found)
    assert missing == PUBLISHING


def test_every_parameter_has_argument(openapi: dict[str, Any]) -> None:
    functions = {**calls_by_operation("client.py"), **calls_by_operation("_resources.py")}
    missing: list[tuple[str, str]] = []
    schemas = openapi["components"]["schemas"]
    for methods in openapi["paths"].values():
        for operation in methods.values():
            identifier = operation["operationId"]
            # The only parameter of `watchJob` is the id of the job.
            if identifier == "watchJob" or identifier in PUBLISHING:
                continue
            names = [
                parameter["name"]
                for parameter in operation.get("parameters", [])
                if parameter.get("in") == "query"
            ]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            if "$ref" in body.get("schema", {}):
                names += schemas[body["schema"]["$ref"].rsplit("/", 1)[1]]["properties"]
            # The function with the arguments is the one in the resources, if there is one.
            text = arguments_of(identifier, functions)
            missing += [
                (identifier, name)
                for name in names
                if name not in text
                and RENAMED.get(name, name) not in text
                and (identifier, name) not in INTERNAL
            ]
    assert not missing


def arguments_of(operation: str, functions: dict[str, ast.AST]) -> set[str]:
    for name in ("_resources.py", "client.py"):
        for node in ast.walk(ast.parse((SOURCES / name).read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(part, ast.Constant) and part.value == operation
                for part in ast.walk(node)
            ):
                found = {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
                # compare() takes a comparison's jobs as its two arguments.
                return found | ({"job_a", "job_b"} if operation == "createComparison" else set())
    node = functions[operation]
    assert isinstance(node, ast.FunctionDef)
    return {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}


def test_every_property_has_field(openapi: dict[str, Any]) -> None:
    missing: list[str] = []
    for name, schema in openapi["components"]["schemas"].items():
        model = getattr(models, name, None)
        if not (inspect.isclass(model) and dataclasses.is_dataclass(model)):
            continue
        fields = {field.name for field in dataclasses.fields(model)}
        missing += [f"{name}.{field}" for field in schema["properties"] if field not in fields]
    assert not missing


def test_every_response_schema_has_model(openapi: dict[str, Any]) -> None:
    for methods in openapi["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                content = response.get("content", {}).get("application/json", {})
                reference = content.get("schema", {}).get("$ref")
                is_page = re.match("list(?!UsageDays)", operation["operationId"])
                if operation["operationId"] in PUBLISHING:
                    continue
                if status.startswith("2") and reference and not is_page:
                    assert hasattr(models, reference.rsplit("/", 1)[1])


def test_every_error_code_has_class(openapi: dict[str, Any]) -> None:
    error = openapi["components"]["schemas"]["Error"]["properties"]["error"]
    codes = error["properties"]["code"]["enum"]
    assert set(codes) == set(ERRORS)
    for code, kind in ERRORS.items():
        assert kind.__name__ == "".join(word.capitalize() for word in code.split("_"))
        assert getattr(assay, kind.__name__) is kind


def test_shells_have_same_methods() -> None:
    from assay_client import _async_resources

    for name, resource in inspect.getmembers(_resources, inspect.isclass):
        if issubclass(resource, _resources.Resource):
            counterpart = getattr(_async_resources, f"Async{name}")
            assert methods_of(resource) == methods_of(counterpart), name
    assert methods_of(assay.Assay) == methods_of(assay.AsyncAssay)


def methods_of(cls: type) -> dict[str, list[str]]:
    functions = inspect.getmembers(cls, inspect.isfunction)
    return {
        name: list(inspect.signature(function).parameters)
        for name, function in functions
        if not name.startswith("_")
    }


def test_every_page_field_is_read(openapi: dict[str, Any]) -> None:
    text = (SOURCES / "_resources.py").read_text() + (SOURCES / "_objects.py").read_text()
    for methods in openapi["paths"].values():
        for operation in methods.values():
            identifier = operation["operationId"]
            if not re.match("list(?!UsageDays|SuiteItems)", identifier) or identifier in PUBLISHING:
                continue
            reference = operation["responses"]["200"]["content"]["application/json"]["schema"]
            page = openapi["components"]["schemas"][reference["$ref"].rsplit("/", 1)[1]]
            (field,) = [n for n, v in page["properties"].items() if v.get("type") == "array"]
            pattern = rf'"{identifier}",\s*"{field}"(.*?)(\n    def |\n\n\n|\Z)'
            call = re.search(pattern, text, re.DOTALL)
            assert call, identifier
            for token in ("cursor", "before"):
                assert (f"next_{token}" in page["properties"]) == (f'token="{token}"' in call[1])

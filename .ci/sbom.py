"""Writes the bill of materials, CycloneDX 1.5. Reads `cargo metadata` from standard input, and checksums from the Cargo.lock that the
first argument names. `.ci/sbom` calls it."""

import json
import os
import sys
import tomllib
import uuid

BINARIES = ["assay-api", "assay-worker"]


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums, kind="library"):
    key = (package["name"], package["version"])
    made = {"type": kind, "bom-ref": purl(package), "name": package["name"], "version": package["version"], "purl": purl(package)}
    if package.get("license"):
        # Cargo's old syntax for "OR".
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package["source"]:
        # Crates of a registry have a checksum. The lookup fails for all others, which must not be linked.
        made["hashes"] = [{"alg": "SHA-256", "content": checksums[key]}]
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def main():
    metadata = json.load(sys.stdin)
    with open(sys.argv[1], "rb") as lock:
        checksums = {(p["name"], p["version"]): p["checksum"] for p in tomllib.load(lock)["package"] if "checksum" in p}
    packages = {p["id"]: p for p in metadata["packages"]}
    nodes = {n["id"]: n for n in metadata["resolve"]["nodes"]}

    def linked(node):
        """Returns the dependencies that are linked into a package, without those of tests and builds."""
        return [dep["pkg"] for dep in nodes[node]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]

    roots = [i for i, p in packages.items() if p["name"] in BINARIES and i in metadata["workspace_members"]]
    assert len(roots) == len(BINARIES), "a binary is missing"
    seen, todo = set(), list(roots)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo.extend(linked(node))
    ordered = sorted(seen, key=lambda i: (packages[i]["name"], packages[i]["version"]))
    version = packages[roots[0]]["version"]
    main_ref = f"assay@{version}"
    commit = os.environ["COMMIT"]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'assay {version} {commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": os.environ["COMMIT_TIME"],
            "component": {
                "type": "application",
                "bom-ref": main_ref,
                "name": "assay",
                "version": version,
                "properties": [{"name": "git:commit", "value": commit}],
            },
        },
        "components": [component(packages[i], checksums, "application" if i in roots else "library") for i in ordered],
        "dependencies": [{"ref": main_ref, "dependsOn": sorted(purl(packages[i]) for i in roots)}]
        + [{"ref": purl(packages[i]), "dependsOn": sorted({purl(packages[j]) for j in linked(i)})} for i in ordered],
    }
    json.dump(document, sys.stdout, indent=2)
    print()


main()

#!/usr/bin/env bash
# Adds a read endpoint as CONTRIBUTING describes, and prints which files were edited by hand. Runs in a clone that it deletes at the end.
# Usage: tests/scripts/endpoint.sh [FILTER …], with the filters of the tests to run in the clone.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
clone=$(mktemp -d)
trap 'rm -rf "$clone"' EXIT
git clone -q "$root" "$clone"
cd "$clone"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}

git apply "$root/tests/vectors/endpoint.patch"
git add --all
echo "Files edited by hand:"
git diff --cached --stat
cargo contract
cargo queries
cargo run --quiet -p assay-api -- openapi >docs/openapi.json
if [ $# -gt 0 ]; then
    cargo test --workspace --test platform -- "$@"
fi
git add --intent-to-add .
echo "Files that programs wrote:"
git diff --stat

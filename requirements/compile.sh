#!/bin/sh
# Pin what pyproject.toml asks for, with hashes and without a registry's address. Needs uv.
set -eu
cd "$(dirname "$0")/.."
pin() { out=$1; shift; uv pip compile pyproject.toml "$@" --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-emit-find-links --no-header --no-annotate -q -o "requirements/$out.txt"; }
pin daemon
pin demo --extra demo --extra cli --group build
pin dev --extra demo --extra cli --group dev

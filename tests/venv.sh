#!/bin/sh
# Make or update the virtual environment $2 with requirements/$3.txt, by uv (seconds), else by pip (half a minute).
# Byte-code is left to the first import: compiling all of the Kubernetes client costs more than the demo.
set -eu
python=$1 venv=$2 set=$3
if [ ! -x "$venv/bin/python" ]; then
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "coreslice needs Python 3.11 or later; $python is $("$python" --version 2>&1). Try make PYTHON=python3.12 …" >&2
    exit 1
  }
  echo "setting up $venv"
  "$python" -m venv "$venv"
fi
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
if [ -x "$venv/bin/uv" ] || $pip install --no-compile --require-hashes -r requirements/bootstrap.txt; then
  VIRTUAL_ENV=$venv "$venv/bin/uv" pip install --quiet --require-hashes -r "requirements/$set.txt" || by_pip=1
else
  by_pip=1
fi
[ -z "${by_pip:-}" ] || $pip install --no-compile --require-hashes -r "requirements/$set.txt"
$pip install --no-compile --no-build-isolation --no-deps --no-index -e .
touch "$venv/.$set"
[ "$set" = demo ] || touch "$venv/.demo"

#!/usr/bin/env bash
# Make .venv-next: the pinned torch and pytest, with the newest Triton that pip finds; again at each call.
# PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

pin() {
    sed -n "s/^ *\"\($1==[^\"]*\)\".*/\1/p" pyproject.toml
}

[[ -x .venv-next/bin/python ]] || "${PYTHON:-python3}" -m venv .venv-next
.venv-next/bin/python -m pip install --quiet "$(pin torch)" "$(pin numpy)" "$(pin pytest)"
# torch's GPU build asks for one Triton; pip says that it now has another, which is the point.
.venv-next/bin/python -m pip install --quiet --upgrade --no-deps triton
.venv-next/bin/python -c 'import triton; print("triton", triton.__version__)'

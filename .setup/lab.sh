#!/usr/bin/env bash
# JupyterLab, open at chapter 00; its arguments go to JupyterLab. `make lab` runs this.
# Kernels talk over sockets in a folder of their own: no two can be given the same port, nobody else on the
# machine can listen, and a home that nothing can be written to is no hindrance.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# A short name: the path of a socket may have 107 bytes.
export JUPYTER_RUNTIME_DIR=${JUPYTER_RUNTIME_DIR:-$(mktemp -d "${XDG_RUNTIME_DIR:-/tmp}/lab-XXXXXX" 2>/dev/null || mktemp -d)}
exec "${LAB_PYTHON:-.venv/bin/python}" -m jupyter lab --KernelManager.transport=ipc \
    --LabApp.default_url=/lab/tree/notebooks/00_welcome.ipynb "$@"

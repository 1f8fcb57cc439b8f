#!/usr/bin/env bash
# JupyterLab, open at chapter 00; its arguments go to JupyterLab. `make lab` runs this.
# Kernels talk over sockets in a folder of their own: no two can be given the same port, nobody else on the
# machine can listen, and a home that nothing can be written to is no hindrance.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One folder for all times, since nobody removes it; another where somebody else has taken its name.
own_folder() {
    mkdir -m 700 "$1" 2>/dev/null || [[ -d $1 && -O $1 && ! -L $1 && $(stat -c %a "$1") == 700 ]]
}
if [[ -z ${JUPYTER_RUNTIME_DIR:-} ]]; then
    folder=${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}/lab-$UID  # short: the path of a socket may have 107 bytes
    own_folder "$folder" || folder=$(mktemp -d)
    export JUPYTER_RUNTIME_DIR=$folder
fi
python=${LAB_PYTHON:-.venv/bin/python}
# In a notebook that isn't signed, JupyterLab strips pictures that were drawn before it was opened again.
"$python" -m jupyter trust notebooks/*.ipynb > /dev/null 2>&1 || true
if ((UID == 0)) && [[ " $* " != *" --allow-root "* ]]; then
    echo "As root, run make lab JUPYTER_ARGS=--allow-root" >&2  # JupyterLab stops, and knows no make
fi
exec "$python" -m jupyter lab --KernelManager.transport=ipc \
    --LabApp.default_url=/lab/tree/notebooks/00_welcome.ipynb "$@"

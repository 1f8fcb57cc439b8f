#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the autograder's image.
set -euo pipefail

root=${AUTOGRADER_ROOT:-/autograder}
source=$root/source

apt-get update
apt-get install --yes --no-install-recommends bubblewrap gcc libc6-dev python3 python3-dev python3-venv

python3 -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || {
    echo "error: this image's Python is $(python3 --version): choose Ubuntu 24.04, which has 3.12" >&2
    exit 1
}
python3 -m venv "$root/env"
"$root/env/bin/python" -m pip install --no-cache-dir uv
# PyTorch without CUDA: the image has no GPU, and CUDA takes 3 GB.
"$root/env/bin/uv" pip install --no-cache --python "$root/env/bin/python" --torch-backend cpu \
    --requirement "$source/requirements.txt"
PYTHONPATH=$source "$root/env/bin/python" -c 'import puzzles_lib.grading.autograder'

#!/usr/bin/env bash
# Bring .venv up to date with pyproject.toml: venv.sh [lab|dev]. Every make target runs this first.
# lab, the default, is what a learner needs; dev adds the tools for tests and style.
# PYTHON names the interpreter; without it, .venv's own or the first suitable one is used.
# TORCH=cpu installs PyTorch's build without CUDA.
#
# .venv/.stamp is written last: "KEY VERSION FOLDER" (complete for these inputs, in this folder),
# "stale" (pip refused, nothing half-done) or "incomplete" (interrupted: start over).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stamp=.venv/.stamp
pin() {
    sed -n "s/^ *\"$1==\([^\"]*\)\".*/\1/p" pyproject.toml
}
triton_pin=$(pin triton)
read -r low high < <(sed -n 's/^requires-python = ">=3\.\([0-9]*\),<3\.\([0-9]*\)"$/\1 \2/p' pyproject.toml)
extra=${1:-lab}
folder=$(pwd -P)

key() {
    { echo "$1" && cat pyproject.toml .setup/*.js*; } | sha256sum | cut -c1-16
}

fail() {
    echo "error: $*" >&2
    exit 1
}

version_of() {
    "$1" -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

fits() {
    "$1" -S -c "import sys; sys.exit(not (3, $low) <= sys.version_info[:2] < (3, $high))" 2>/dev/null
}

is_current() {
    local version found
    version=$(version_of .venv/bin/python)
    [[ -n $version && -f $stamp ]] || return
    found=$(<"$stamp")
    [[ $found == "$(key "$extra") $version $folder" || $found == "$(key dev) $version $folder" ]] &&
        [[ -z ${PYTHON:-} || $(version_of "$PYTHON") == "$version" ]]
}

# Whether pip can bring .venv up to date in place: not interrupted, not moved, of Python $1.
is_sound() {
    local state="" old_version="" old_folder=""
    [[ ! -f $stamp ]] || read -r state old_version old_folder <"$stamp"
    [[ $state != incomplete && ${old_folder:-$folder} == "$folder" && $(version_of .venv/bin/python) == "$1" ]] &&
        .venv/bin/python -m pip --version >/dev/null 2>&1
}

# Prints the path of the interpreter to build .venv with: never one inside a virtual environment.
choose_python() {
    local needs="the course needs Python 3.$low to 3.$((high - 1))" candidates=(.venv/bin/python python3)
    for ((minor = high - 1; minor >= low; minor--)); do candidates+=("python3.$minor"); done
    if [[ -n ${PYTHON:-} ]]; then
        command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON is not found; $needs"
        candidates=("$PYTHON")
    fi
    for python in "${candidates[@]}"; do
        if fits "$python"; then
            "$python" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))'
            return
        fi
    done
    python=${PYTHON:-python3}
    found=$(version_of "$python")
    fail "$needs, and $python is ${found:-missing}: install one that fits, or name it: make PYTHON=/path/to/python"
}

pip_install() {
    local bar=()
    [[ -t 1 ]] || bar=(--progress-bar off)  # then a line for each package shows how far it is
    .venv/bin/python -m pip install --no-compile "${bar[@]}" "$@"  # 240 MB of bytecode, mostly never used
}

# uv knows where PyTorch keeps its builds. It goes again, with its folder.
torch_without_cuda() {
    local torch
    torch=torch==$(pin torch)
    pip_install --target .venv/uv uv &&
        .venv/uv/bin/uv pip install --python .venv/bin/python --torch-backend cpu --no-deps "$torch" &&
        rm -rf .venv/uv
}

install() {
    local python version advice="copy the course to a folder of your own, and make there"
    [[ ! -e .venv || $(stat -c %u .venv) == "$(id -u)" ]] ||  # before anything in it is removed
        fail ".venv is another user's, and out of date or not for you to run: $advice"
    python=$(choose_python)
    version=$(version_of "$python")
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module: sudo apt install python$version-venv (or your system's like), then make again"
    is_sound "$version" || rm -rf .venv
    trap 'exit 130' INT  # leaves "incomplete"
    mkdir -p .venv 2>/dev/null || fail "$folder is not writable for you: $advice"
    echo "Setting up .venv with Python $version (a few minutes the first time)"
    echo incomplete >"$stamp"
    [[ -x .venv/bin/python ]] || "$python" -m venv .venv || fail "$python could not make .venv"
    if ! { [[ -z ${TORCH:-} ]] || torch_without_cuda; } || ! pip_install --editable ".[$extra]"; then
        echo stale >"$stamp"
        fail "the packages could not be installed, for the reason above (without a network, pip also says" \
            "\"No matching distribution\"); then run make again"
    fi
    # The bytecode that every session needs, for users who may not write here.
    .venv/bin/python -c 'import ipykernel.kernelapp, jupyterlab.labapp, matplotlib.pyplot, torch, triton' \
        >/dev/null 2>&1 || true
    echo "$(key "$extra") $version $folder" >"$stamp"
}

system="$(uname -s) $(uname -m)"
case $system in
    "Linux x86_64" | "Linux aarch64") ;;
    *) fail "triton runs on Linux x86-64 and aarch64 only, this is $system: use WSL2, a container or a hosted Jupyter" ;;
esac

[[ -z ${TORCH:-} || $TORCH == cpu ]] || fail "TORCH=$TORCH: the only choice is TORCH=cpu, PyTorch without CUDA"

if ! is_current; then
    exec 9<.
    flock --nonblock 9 || { echo "Another make is setting up .venv: waiting for it" && flock 9; }
    is_current || install
fi

shopt -s nullglob
found=(.venv/lib/python3*/site-packages/triton-[0-9]*.dist-info)
found=${found[*]##*/triton-}
[[ $found == "$triton_pin.dist-info" ]] || {
    found=${found%.dist-info}
    fail ".venv has triton ${found:-(none)}, the course needs $triton_pin: run .venv/bin/pip install triton==$triton_pin"
}

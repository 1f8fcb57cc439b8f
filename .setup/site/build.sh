#!/usr/bin/env bash
# Write the course as a website to site/: `make site`. The packages are the `site` extra's, in .venv-site.
# PYTHON names the interpreter; REPOSITORY=owner/name and BRANCH are those that links to GitHub go to.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv-site/bin/python
stamp=.venv-site/.packages

[[ -x $python ]] || "${PYTHON:-python3}" -m venv .venv-site
packages=$("$python" -c 'import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*project["optional-dependencies"]["site"], sep="\n")')
if [[ ! -f $stamp || $(<"$stamp") != "$packages" ]]; then
    echo "Setting up .venv-site (once)"
    # shellcheck disable=SC2086  # one argument per package
    "$python" -m pip install --quiet $packages
    echo "$packages" >"$stamp"
fi
"$python" -m puzzles_lib.authoring.site build/site --repository "${REPOSITORY:-}" --branch "${BRANCH:-main}"
rm -rf site
"$python" -m sphinx -E -q -W --keep-going -j auto -d build/site-cache build/site site
echo "Open site/index.html, or run: python3 -m http.server --directory site"

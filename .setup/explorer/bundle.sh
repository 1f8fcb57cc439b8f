#!/usr/bin/env bash
# Bundle entry.js and what it imports, with the licences, into the one file that ships: `make explorer`.
# Needs npm; writes the same bytes each time. The packages come and go in a folder of their own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
made=$(realpath ../../puzzles_lib/tracer/three.bundle.js)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp package.json entry.js "$folder"
cd "$folder"
npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts

licences() {
    echo "/*! Made by \`make explorer\`: three.js, its OrbitControls, troika-three-text and what they need, minified,"
    echo "and the font Inter, each under its own licence."
    for package in $(node -p 'Object.keys(require("./package.json").dependencies).join(" ")'); do
        node -p "const p = require('./node_modules/$package/package.json'); \`\n==== \${p.name} \${p.version}, \${p.license}\n\`"
        find "node_modules/$package" -maxdepth 1 -iname 'license*' -exec cat {} +
    done
    echo "*/"
}

node_modules/.bin/esbuild entry.js --bundle --minify --format=esm --target=es2022 --charset=utf8 \
    --loader:.woff=dataurl --legal-comments=none --log-level=warning --outfile=bundled.js
{ licences | tr -d '\r' | sed 's/[[:space:]]*$//'; cat bundled.js; } >"$made"
echo "$made: $(wc -c <"$made") bytes"

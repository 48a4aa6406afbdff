#!/usr/bin/env bash
# Checks the Python client: format, lints and types, unit tests, the scenarios of all clients, its package in an empty virtual environment, and the
# examples of its README. Takes no arguments and stops at the first failure. DELTAQ_BIN is the server; without it, target/debug/deltaq is built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary
DELTAQ_BIN=$(realpath "$binary")
export DELTAQ_BIN

package=clients/python
tools=$PWD/target/python-client
if ! cmp -s "$package/tools.txt" "$tools/installed.txt"; then
    rm -rf "$tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement "$package/tools.txt"
    cp "$package/tools.txt" "$tools/installed.txt"
fi
python=$tools/bin/python
config=$PWD/$package/pyproject.toml

for folder in "$package" tests/clients; do
    (
        cd "$folder"
        "$tools/bin/ruff" format --quiet --check --config "$config"
        # B023: the runner calls the functions of a loop before the loop goes on.
        "$tools/bin/ruff" check --quiet --config "$config" --extend-ignore B023
    )
done
(cd "$package" && "$tools/bin/mypy" --no-error-summary src scenarios tests benchmarks)
(cd tests/clients && "$tools/bin/mypy" --no-error-summary --config-file "$config" -- *.py)
PYTHONPATH=$package/src "$python" -m unittest discover --start-directory "$package/tests" --buffer

for client in python python-async; do
    "$python" tests/clients/run.py --client "$client" --server "$binary"
done

# The package, as a user installs it.
"$python" -m build --no-isolation --outdir "$work/dist" "$package" > "$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
# The sdist is built with the tools of above, because `--no-index` can't fetch them.
"$tools/bin/pip" wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir "$work/sdist" "$work"/dist/*.tar.gz
for wheel in "$work"/dist/*.whl "$work"/sdist/*.whl; do
    rm -rf "$work/empty"
    python3 -m venv "$work/empty"
    "$work/empty/bin/pip" install --quiet --disable-pip-version-check --no-index "$wheel"
    start_server --in-memory
    "$work/empty/bin/python" "$package/tests/readme.py" "$package/README.md" "$api"
    "$work/empty/bin/python" tests/clients/examples.py "$api"
    stop_server
done
echo "the wheel and the sdist are built, and with each of them alone, the examples of the README work"

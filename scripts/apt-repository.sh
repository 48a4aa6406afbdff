#!/usr/bin/env bash
# Puts Debian packages into a repository for apt-get, which is made if it does not exist. A web server publishes the folder as it is.
#
#     scripts/apt-repository.sh FOLDER KEY PACKAGE...
#
# KEY names the key of gpg that signs the repository; users get its public part from FOLDER/deltaq-archive-keyring.gpg. FOLDER/conf and FOLDER/db
# belong to reprepro: the next call, such as one for another architecture, needs them. The newest version of each package is kept. Needs reprepro.
set -euo pipefail

folder=$1
key=$2
shift 2
command -v reprepro > /dev/null || { echo "reprepro is missing: apt-get install reprepro" >&2; exit 1; }
mkdir -p "$folder/conf"
cat > "$folder/conf/distributions" << END
Origin: deltaq
Label: deltaq
Codename: stable
Components: main
Architectures: amd64 arm64
Description: Packages of deltaq
SignWith: $key
END
rm -f "$folder/deltaq-archive-keyring.gpg"
gpg --batch --quiet --output "$folder/deltaq-archive-keyring.gpg" --export "$key"
[ -s "$folder/deltaq-archive-keyring.gpg" ] || { echo "gpg has no key $key" >&2; exit 1; }
reprepro --silent --basedir "$folder" includedeb stable "$@"

#!/usr/bin/env bash
# Checks that the crates can be packaged with every file that they need, so that `cargo install deltaq` works: the program, the parts of which it
# consists, and the two libraries for other programs.
#
#     scripts/rust-packages.sh [--build]
#
# With --build cargo also compiles each crate from its package, with the packages of the others; this takes as long as the first build.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "$*" >&2; exit 1; }
packages=target/packages
rm -rf "$packages/package"
options=(--no-verify)
if [ "${1:-}" = --build ]; then options=(); fi
# A package that was not committed is checked, too. Otherwise, other steps build and test the code.
cargo package --workspace --locked --allow-dirty "${options[@]}" --target-dir "$packages"

files=$(mktemp -d "$PWD/target/rust-packages.XXXXXX")
trap 'rm -rf "$files"' EXIT
for package in "$packages"/package/*.crate; do
    tar --extract --file "$package" --directory "$files"
    # crates.io takes at most 10 MiB.
    [ "$(stat --format %s "$package")" -lt 5000000 ] || fail "$package is large"
done
version=$(sed -n '/^\[package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
for crate in . crates/*; do
    name=$(sed -n '/^\[package\]/,/^$/s/^name = "\(.*\)"/\1/p' "$crate/Cargo.toml")
    [ -d "$files/$name-$version" ] || fail "$name has no package of version $version"
    # What the code includes.
    while IFS=: read -r source _ included; do
        included=${included#*\"}
        included=${included%\"}
        [ -e "$(dirname "$source")/$included" ] || fail "$source includes $included, which is not in the package"
    done < <(grep -rno --include='*.rs' 'include_\(str\|bytes\)!("[^"]*"' "$files/$name-$version" || true)
done
for file in config/deltaq.toml console/index.html LICENSE README.md Cargo.lock; do
    [ -s "$files/deltaq-$version/$file" ] || fail "the package deltaq has no $file"
done

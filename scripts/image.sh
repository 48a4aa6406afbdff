#!/usr/bin/env bash
# Builds the image of the Dockerfile with podman and checks it: it has only the files that it should, starts with a read-only root, serves on a
# published port, requires its tokens, keeps its data on the volume, reports its health, and stops cleanly.
#
#     scripts/image.sh            builds with the base image of its registry, and keeps the image as localhost/deltaq
#     scripts/image.sh BINARY     needs no registry: the base image is a stand-in, and `cargo` in the build stage copies BINARY instead of
#                                 compiling. Keeps nothing. The C library that BINARY may need is mounted into the containers.
#
# Exits with 77 if this machine can't run containers. Needs root or rootless podman, curl and jq.
set -euo pipefail
cd "$(dirname "$0")/.."

# podman's bridge changes the addresses of the machine, and Chromium then ends all its requests, also those of tests that run at the same time. So
# this check gets a network of its own where it may. It needs none of the machine's with stand-ins.
if [ -n "${1:-}" ] && [ -z "${IN_OWN_NETWORK:-}" ] && unshare --net true 2> /dev/null; then
    IN_OWN_NETWORK=1 exec unshare --net sh -c 'ip link set lo up && exec "$@"' sh "./scripts/image.sh" "$@"
fi

mkdir -p target
work=$(mktemp -d "$PWD/target/image.XXXXXX")
podman=(podman)
run_options=(--ulimit nofile=4096:4096 --ulimit nproc=1024:1024)
container=deltaq-image-check-$$
volume=$container

fail() { echo "$*" >&2; exit 1; }
unavailable() { echo "the image is not checked: $*" >&2; exit 77; }

finish() {
    "${podman[@]}" rm --force --time 1 "$container" > /dev/null 2>&1 || true
    "${podman[@]}" volume rm --force "$volume" > /dev/null 2>&1 || true
    # Layers belong to other users, and podman knows where they are mounted.
    if [ -d "$work/storage" ]; then "${podman[@]}" system reset --force > /dev/null 2>&1 || true; fi
    rm -rf "$work"
}
trap finish EXIT

# A folder with these programs and files of this machine, and the libraries that they need, becomes an image.
stand_in() { # image, path...
    local image=$1 root path
    shift
    root=$(mktemp -d "$work/stand-in.XXXXXX")
    chmod 755 "$root"
    mkdir -p "$root/etc" "$root/tmp"
    printf 'root:x:0:0::/:/bin/sh\n' > "$root/etc/passwd"
    printf 'root:x:0:\n' > "$root/etc/group"
    for path; do
        if [ -x "$path" ]; then ldd "$path" 2> /dev/null | grep -o '/[^ ]*' || true; fi
        echo "$path"
    done | sort -u | while read -r path; do install -D "$path" "$root/${target_of[$path]:-$path}"; done
    tar --create --directory "$root" --owner 0 --group 0 . | "${podman[@]}" import --quiet - "$image" > /dev/null
}
declare -A target_of=()

if ! command -v podman > /dev/null; then unavailable "podman is not installed"; fi
binary=${1:-}
build_options=()
if [ -n "$binary" ]; then
    # A storage of its own: names such as `rust` must not get another meaning on this machine.
    mkdir "$work/networks"
    podman=(podman --root "$work/storage" --runroot "$work/run" --network-config-dir "$work/networks")
    # These need no systemd.
    podman+=(--cgroup-manager cgroupfs --events-backend file)
    # crun refuses the hybrid cgroups of some machines; runc does not.
    if command -v runc > /dev/null; then podman+=(--runtime runc); fi
    build_options=(--isolation chroot --pull=never)
    [[ $binary == /* ]] || binary=$PWD/$binary

    # The files that the compiler has read for BINARY must be in the context.
    cat "$(dirname "$binary")"/deps/deltaq*.d | tr ' ' '\n' | sed "s|^$PWD/||" | while read -r file; do
        if [[ $file != target/* && -f $file ]]; then echo "$file"; fi
    done | sort -u > "$work/sources"
    [ -s "$work/sources" ] || fail "$binary is no build of this folder"
    printf '%s\n' Cargo.toml Cargo.lock crates/*/Cargo.toml .cargo/config.toml >> "$work/sources"

    cat > "$work/cargo" << 'END'
#!/bin/sh
set -e
[ "$*" = "build --profile dist --locked --bin deltaq" ] || { echo "unexpected: cargo $*" >&2; exit 1; }
while read -r file; do
    [ -e "$file" ] || { echo "$file is not in the context" >&2; exit 1; }
done < /sources
mkdir -p target/dist
cp /binary target/dist/deltaq
END
    chmod 755 "$work/cargo"
    target_of=(["$work/cargo"]=usr/local/bin/cargo ["$work/sources"]=sources ["$binary"]=binary)
    mapfile -t bases < <(sed -n 's/^FROM \([^ ]*\).*/\1/p' Dockerfile)
    [ "${bases[*]:1}" = scratch ] || fail "the image is not FROM scratch"
    # An engine that can't store an image, or can't run its shell with a published port, can't check anything.
    stand_in "${bases[0]}" /bin/sh /bin/cp /bin/mkdir /bin/rm /etc/ssl/certs/ca-certificates.crt "$work/cargo" "$work/sources" "$binary" ||
        unavailable "podman can't store an image here"
    if ! said=$("${podman[@]}" run --rm "${run_options[@]}" --publish 127.0.0.1::7070 "${bases[0]}" /bin/sh -c 'echo runs' 2>&1) || [ "$said" != runs ]; then
        unavailable "podman can't run a container with a published port here: $said"
    fi
    for library in $(ldd "$binary" | grep -o '/[^ ]*' || true); do run_options+=(--volume "$(realpath "$library"):$library:ro"); done
fi

"${podman[@]}" build --quiet "${build_options[@]}" --tag localhost/deltaq . > "$work/build.log" 2>&1 || { cat "$work/build.log" >&2; fail "no image"; }

# Nothing else is in the image, and root owns all but the data.
image_root=$("${podman[@]}" create localhost/deltaq)
files=$("${podman[@]}" export "$image_root" | tar --list --verbose --numeric-owner | awk '$1 !~ /^d/ { print $2, $6 } $6 == "data/" { print $1, $2, $6 }')
"${podman[@]}" rm "$image_root" > /dev/null
expected=$(printf '%s\n' "drwxr-xr-x 65532/65532 data/" "0/0 etc/deltaq/deltaq.toml" "0/0 etc/ssl/certs/ca-certificates.crt" "0/0 usr/local/bin/deltaq")
# podman adds the files that it mounts over.
files=$(grep -v ' \(run/\.containerenv\|\.dockerenv\|etc/hosts\|etc/hostname\|etc/resolv.conf\|etc/mtab\)$' <<< "$files" | sort)
[ "$files" = "$(sort <<< "$expected")" ] || fail "the image has: $files"

start() { # options and arguments of `podman run` behind the fixed ones
    "${podman[@]}" run --detach --name "$container" --read-only "${run_options[@]}" --publish 127.0.0.1::7070 --volume "$volume:/data" "$@" \
        > /dev/null
    url=http://$("${podman[@]}" port "$container" 7070)
    # The health check of the image.
    local attempt
    for attempt in {1..100}; do
        if "${podman[@]}" exec "$container" /usr/local/bin/deltaq health > /dev/null 2>&1; then return; fi
        sleep 0.1
    done
    "${podman[@]}" logs "$container" >&2
    fail "not healthy after $attempt attempts"
}

stop() {
    "${podman[@]}" stop --time 40 "$container" > /dev/null
    [ "$("${podman[@]}" wait "$container")" = 0 ] || { "${podman[@]}" logs "$container" >&2; fail "no clean exit"; }
    "${podman[@]}" rm "$container" > /dev/null
}

status() { curl --silent --output /dev/null --write-out '%{http_code}' "$@"; }

# As the header of the Dockerfile says, without tokens. A host name must be accepted.
start localhost/deltaq serve --insecure
[ "$("${podman[@]}" image inspect --format '{{.Config.User}}' localhost/deltaq)" = 65532:65532 ] || fail "the image runs as root"
curl --silent --fail --header 'host: deltaq' --json '{"key":"a"}' "$url/v1/queues/check/add" > /dev/null || fail "no answer on the port"
stop

# With tokens. The data of the first container are still there.
mkdir -m 777 "$work/access"
token=$("${podman[@]}" run --rm "${run_options[@]}" --volume "$work/access:/access" localhost/deltaq \
    token check --verbs read --queues '*' --file /access/tokens.toml)
start --volume "$work/access/tokens.toml:/etc/deltaq/tokens.toml:ro" --env DELTAQ_ACCESS__TOKENS_FILE=/etc/deltaq/tokens.toml localhost/deltaq
[ "$(status "$url/v1/queues")" = 401 ] || fail "no token is required"
ready=$(curl --silent --fail --header "authorization: Bearer $token" "$url/v1/queues/check" | jq .status.ready)
[ "$ready" = 1 ] || fail "the volume does not keep the data"
stop
echo "the image was built, served with and without tokens, and kept its data"

#!/usr/bin/env bash
# A real kube-apiserver over a real etcd on loopback, and an informer of client-go. All are built from Go modules.
#
#   apiserver.sh build DIR             the programs in DIR; about 10 minutes on 2 cores the first time, nothing if they are there
#   apiserver.sh keys RUN              certificates and tokens of a run in RUN/pki: two authorities, each with a serving certificate
#   apiserver.sh etcd DIR RUN          runs etcd with its data in RUN/data, in the foreground
#   apiserver.sh api DIR RUN FLAG...   runs the API server, in the foreground
#
# Ports: KUBE_PORT (26443), KUBE_ETCD_PORT (23790), KUBE_PEER_PORT (23791). The token admin-token may do everything.
set -euo pipefail

# The informer's go.mod has the same version of Kubernetes.
kubernetes=1.37.2
etcd=3.7.3
versions="kubernetes $kubernetes, etcd $etcd"
informer=$(cd "$(dirname "$0")/informer" && pwd)
port=${KUBE_PORT:-26443} etcd_port=${KUBE_ETCD_PORT:-23790} peer_port=${KUBE_PEER_PORT:-23791}

build() { # folder
    mkdir -p "$1"
    local dir source staging=0.${kubernetes#1.}
    dir=$(cd "$1" && pwd)
    export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
    (cd "$informer" && go build -trimpath -o "$dir/informer" .)
    if [ "$(cat "$dir/versions.txt" 2> /dev/null)" = "$versions" ]; then return; fi

    export GOFLAGS="-mod=mod -buildvcs=false"
    mkdir -p "$dir/kubernetes" "$dir/etcd-build"
    cd "$dir/kubernetes"
    source=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
    # Kubernetes replaces its staging modules by folders. They are published as modules.
    {
        sed -e 's#^module .*#module kube#' -e '/^replace/,$d' "$source/go.mod"
        echo "require k8s.io/kubernetes v$kubernetes"
        sed -n '/^replace (/,/^)/p' "$source/go.mod" | grep -o 'k8s.io/[a-z0-9-]* =>' |
            sed "s#\(k8s.io/[a-z0-9-]*\) =>#replace \1 => \1 v$staging#"
    } > go.mod
    install -m 644 "$source/go.sum" go.sum
    install -m 644 "$source/cmd/kube-apiserver/apiserver.go" main.go
    local of=k8s.io/component-base/version minor=${kubernetes#*.}
    go build -trimpath -ldflags "-s -w -X $of.gitVersion=v$kubernetes -X $of.gitMajor=1 -X $of.gitMinor=${minor%.*}" -o "$dir/kube-apiserver" .

    cd "$dir/etcd-build"
    [ -f go.mod ] || go mod init etcd-build
    go get "go.etcd.io/etcd/server/v3@v$etcd" "go.etcd.io/etcd/etcdctl/v3@v$etcd" "go.etcd.io/etcd/etcdutl/v3@v$etcd"
    go build -trimpath -o "$dir/etcd" go.etcd.io/etcd/server/v3
    for program in etcdctl etcdutl; do go build -trimpath -o "$dir/$program" "go.etcd.io/etcd/$program/v3"; done
    echo "$versions" > "$dir/versions.txt"
}

keys() { # run
    mkdir -p "$1/pki"
    cd "$1/pki"
    printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n' > serving.ext
    local authority
    for authority in 1 2; do
        openssl req -x509 -newkey rsa:2048 -nodes -keyout "ca-$authority.key" -out "ca-$authority.crt" -days 3650 \
            -subj "/CN=authority-$authority" -addext "basicConstraints=critical,CA:TRUE"
        openssl req -newkey rsa:2048 -nodes -keyout "serving-$authority.key" -out serving.csr -subj /CN=kube-apiserver
        openssl x509 -req -in serving.csr -CA "ca-$authority.crt" -CAkey "ca-$authority.key" -CAcreateserial -days 3650 \
            -out "serving-$authority.crt" -extfile serving.ext
    done
    cat ca-1.crt ca-2.crt > authorities.crt
    cp serving-1.crt serving.crt
    cp serving-1.key serving.key
    openssl genrsa -out sa.key 2048
    openssl rsa -in sa.key -pubout -out sa.pub
    printf 'admin-token,admin,1,"system:masters"\n' > tokens.csv
}

run_etcd() { # folder, run
    local url=http://127.0.0.1:$etcd_port peer=http://127.0.0.1:$peer_port
    exec "$1/etcd" --name t --data-dir "$2/data" --listen-client-urls "$url" --advertise-client-urls "$url" --listen-peer-urls "$peer" \
        --initial-advertise-peer-urls "$peer" --initial-cluster "t=$peer" --unsafe-no-fsync --log-level warn
}

run_api() { # folder, run, flags
    local dir=$1 pki=$2/pki
    shift 2
    exec "$dir/kube-apiserver" --etcd-servers="http://127.0.0.1:$etcd_port" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
        --secure-port="$port" --endpoint-reconciler-type=none --cert-dir="$pki" --tls-cert-file="$pki/serving.crt" \
        --tls-private-key-file="$pki/serving.key" --client-ca-file="$pki/ca-1.crt" --token-auth-file="$pki/tokens.csv" \
        --authorization-mode=AlwaysAllow --service-cluster-ip-range=10.0.0.0/24 --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
        --disable-admission-plugins=ServiceAccount "$@"
}

case ${1:-} in
    build) build "$2" ;;
    keys) keys "$2" 2> /dev/null ;;
    etcd) run_etcd "$2" "$3" ;;
    api) run_api "${@:2}" ;;
    *)
        sed -n '2,9p' "$0" >&2
        exit 2
        ;;
esac

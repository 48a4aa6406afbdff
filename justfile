# Everyday commands. `just` lists them.

default:
    @just --list

# Run the server on 127.0.0.1:7070 with its database in ./deltaq-data.
run *args:
    cargo run --release -- serve {{args}}

# Make the files of a release: a static binary, the packages, the SBOM, the provenance, checksums.
release:
    ./scripts/release.sh

# Build target/optimized/deltaq, the fastest binary: build, profile under load, build again.
profile-guided:
    ./scripts/profile-guided.sh

# Everything that CI checks.
check:
    ./scripts/test.sh

# The tests that need no other programs, on any Linux, without the two longest groups: recordings of client-go over HTTP, and memory.
# `just quick rules::` runs those with this name.
quick *filter:
    #!/usr/bin/env bash
    set -euo pipefail
    if cargo nextest --version > /dev/null 2>&1; then
        cargo nextest run --workspace --locked --filterset 'not test(/^(system|chaos|memory)::|_over_http$/)' {{filter}}
    else
        cargo test --workspace --locked --lib --test it -- --test-threads 4 --skip system:: --skip chaos:: --skip memory::no_ --skip _over_http {{filter}}
    fi

# Format and lints, without running tests.
lint:
    cargo fmt --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib --examples --document-private-items --locked

# First views and long tasks of the console, with 1,000 queues and 100,000 keys.
console-measure *folder:
    cargo build --release --locked
    ./scripts/console.py target/release/deltaq measure {{folder}}

# Memory of the console while a queue changes 1,000 times a second.
console-soak minutes="60":
    cargo build --release --locked
    ./scripts/console.py target/release/deltaq soak {{minutes}}

# Take the pictures of docs/console.md again.
console-pictures:
    cargo build --release --locked
    ./scripts/console.py target/release/deltaq pictures docs/console

# The checks that take too long for CI, in about two hours: to be run before a release, and every night, after `just check`, which builds the clients.
judges:
    just schemathesis 200
    just go-client
    just java-client
    just program-packages
    just debian-package
    just rust-packages
    for client in go java python python-async rust typescript; do just informer-faults $client; done
    just pop-replies 100000
    just differences
    just crash-readers 200
    just crash-nodes 120
    just crash-failovers 20
    just crash-steps
    just replication 100000
    just lives
    just sources
    just kubernetes
    just kubernetes-wire
    just tenants
    just rotation
    just unattended
    just push-verifiers
    just hook-signers
    just endpoints
    just simulator

# The judges, and the long forms of the random tests with random seeds. CI runs them with small budgets and fixed seeds.
nightly:
    DELTAQ_PROPERTY_SEED=$RANDOM just properties 4000000
    just simulate 10000
    CRASH_SEED=$RANDOM just crash 200
    just judges

# Simulated runs of the service with faults; one seed is one run.
simulate seeds="100000":
    DELTAQ_SIMULATION_SEEDS={{seeds}} cargo test --locked -p deltaq --test it chaos::simulation::seeds -- --nocapture

# Random histories of starts, copies, restores and wrong clocks: no number of a lost time comes back, and none of a kept one is refused. `rounds`
# are histories of real processes: on folders, and on databases whose primary is lost while the standby lags.
lives seeds="1000" rounds="20":
    DELTAQ_LIVES_SEEDS={{seeds}} DELTAQ_LIVES_ROUNDS={{rounds}} cargo test --locked -p deltaq --test it chaos::simulation::lives:: -- --nocapture

# Faults of real sources of each kind under deltaq reflect; the queue must equal the source after each. `--list` prints them, `--kind rest` runs some.
sources *args:
    cargo build --release --locked
    ./scripts/judge_sources.py target/release/deltaq {{args}}

# Random commands on the engine and on a naive model of it.
properties commands="30000000":
    DELTAQ_PROPERTY_COMMANDS={{commands}} cargo test --locked -p deltaq-engine --test it properties:: -- --nocapture

# Kill the server at random moments under load, restart it, and judge the history of all answers.
crash cycles="200":
    CRASH_CYCLES={{cycles}} cargo test --locked -p deltaq --test it chaos::crash::kill_nine_cycles -- --nocapture

# Followers and watchers while the server is killed at random moments.
crash-readers cycles="200":
    CRASH_CYCLES={{cycles}} cargo test --locked -p deltaq --test it chaos::crash::followers -- --nocapture
    CRASH_CYCLES={{cycles}} cargo test --locked -p deltaq --test it chaos::crash::watchers -- --nocapture

# Failures of three nodes on one PostgreSQL: kills, freezes, cuts from the database and between nodes, wrong clocks. 8 rounds take 80 seconds.
crash-nodes rounds="200":
    CRASH_CYCLES={{rounds}} cargo test --locked -p deltaq --test it chaos::crash::faults_of_three_nodes -- --nocapture

# Changes of a replicated table, which are sent once and in order over kills of the reflector, the queue and the database.
replication changes="100000":
    DELTAQ_REPLICATION_CHANGES={{changes}} cargo test --locked -p deltaq --test it replication::history::each -- --nocapture

# Loss of the database's primary under load: Patroni makes the synchronous standby the primary. 4 rounds take 90 seconds.
crash-failovers rounds="20":
    CRASH_CYCLES={{rounds}} cargo test --locked -p deltaq --test it chaos::crash::failovers -- --nocapture

# End the process at every single write of a workload, not only at some.
crash-steps:
    DELTAQ_ALL_STEPS=1 cargo test --locked -p deltaq --test it chaos::faults:: -- --nocapture
    DELTAQ_ALL_STEPS=1 cargo test --locked -p deltaq --test it chaos::simulation::crashes:: -- --nocapture

# The HTTP API against its own description, with more generated requests than CI sends.
schemathesis examples="200":
    MAX_EXAMPLES={{examples}} ./scripts/schemathesis.sh

# Clients that two generators make of docs/openapi.json, used against a server.
generated-client:
    ./scripts/generated-client.sh

# The Python client: lints, types, unit tests, scenarios, its package in an empty virtual environment.
python-client:
    ./scripts/python-client.sh

# The Go client and its modules for client-go and controller-runtime: format, lints, tests and scenarios with the race detector.
go-client:
    ./scripts/go-client.sh --all

# The Java client: three versions of Jackson, both JDKs, Spring Boot, fabric8, the documentation of the classes.
java-client:
    ./scripts/java-client.sh --all

# The wheel and the packages for npm that bring the program, also with twine, pnpm and yarn.
program-packages:
    ./scripts/program-packages.sh --all

# The Debian package with the whole program: lintian, a signed repository, apt-get, an upgrade over a running server, a purge.
debian-package:
    cargo build --release --locked
    DELTAQ_BIN=target/release/deltaq ./scripts/debian-package.sh --all

# Each crate compiled from its package, as crates.io would have it.
rust-packages:
    ./scripts/rust-packages.sh --build

# One list of scenarios for the clients of all languages; `just clients python --scenario lost-answers` runs one of them.
clients client *args:
    python3 tests/clients/run.py --client {{client}} {{args}}

# An informer's store equals the queue's view after each of 1,000 random faults.
informer-faults client faults="1000":
    python3 tests/clients/run.py --client {{client}} --scenario informer-random-faults --faults {{faults}}

# Count the instructions of a whole request, by part of the program.
request-instructions:
    cargo build --locked --profile dist --bin deltaq
    ./scripts/request_instructions.py

# Count the instructions of the engine, and compare them with the committed figures. `--update` writes the figures.
instructions *args:
    ./scripts/instructions.py {{args}}

# Measure the Python worker beside raw HTTP.
bench-python *args:
    cargo build --release --locked
    PYTHONPATH=clients/python/src python3 clients/python/benchmarks/worker.py --server target/release/deltaq {{args}}

# `deltaq reflect --kubernetes` beside client-go at a real API server, with faults; needs Go. `just kubernetes cut-5s` applies one of them.
kubernetes *faults:
    cargo build --locked
    ./scripts/kubernetes/apiserver.sh build target/kubernetes
    ./scripts/judge_kubernetes.py target/debug/deltaq {{faults}}

# Unmodified clients of Kubernetes read and write queues while random histories and faults change them; needs Go, npm and kubectl. `just kubernetes-wire real`
# judges the clients by a real API server, and `just kubernetes-wire deltaq 1000` is the long form.
kubernetes-wire server="deltaq" histories="20":
    cargo build --locked
    {{ if server == "real" { "./scripts/kubernetes/apiserver.sh build target/kubernetes" } else { "true" } }}
    ./scripts/judge_kubernetes_wire.py target/debug/deltaq --server {{server}} --histories {{histories}}

# Measure informers of client-go at deltaq and at a real API server over etcd: time, bytes, CPU, memory. `just kubernetes-wire-measure 5x1000` is a short form.
kubernetes-wire-measure *shapes:
    cargo build --release --locked
    ./scripts/kubernetes/apiserver.sh build target/kubernetes
    ./scripts/measure_kubernetes_wire.py target/release/deltaq {{shapes}}

# Eight tenants share a server, and one is hostile: the calls of the others must stay fast, and none may be refused.
tenants seconds="15":
    cargo build --release --locked
    ./scripts/judge_tenants.py target/release/deltaq {{seconds}}

# A thousand endpoints on one server, ten of them dead: the others must get their changes as fast as without the dead ones, with bounded connections and memory.
endpoints:
    cargo build --release --locked
    ./scripts/judge_endpoints.py target/release/deltaq

# Rotates the tokens of workers in all languages and of a reflector under load: no call may fail.
rotation seconds="60":
    cargo build --locked --workspace --examples
    ./scripts/judge_rotation.py target/debug/deltaq {{seconds}}

# Stages what docs/operations.md says about things that stop unattended: each must show within a minute.
unattended *names:
    cargo build --locked
    ./scripts/judge_unattended.py target/debug/deltaq {{names}}

# The official verifiers of Standard Webhooks, from PyPI and npm, judge the signatures of pushed requests.
push-verifiers:
    ./scripts/push-verifiers.sh

# The libraries of the vendors sign deliveries of webhooks, and GitHub's deliveries arrive in random orders. HOOK_SIGNERS_SEED repeats the orders.
hook-signers:
    ./scripts/hook-signers.sh

# Random replies to pops over slow readers: each must arrive byte for byte. DELTAQ_REPLY_SEED chooses other ones.
pop-replies replies="100000":
    DELTAQ_REPLIES={{replies}} cargo test --locked -p deltaq --test it server::pop_replies

# Differences of random pairs of objects: two other implementations of JSON patches must make the new object of the old one.
differences pairs="1000000":
    DELTAQ_DIFFERENCES={{pairs}} cargo test --locked -p deltaq-engine --test it differences
    cargo build --release --locked
    python3 -m venv target/jsonpatch
    target/jsonpatch/bin/pip install --quiet --disable-pip-version-check --only-binary :all: jsonpatch==1.47 jsonpointer==3.12
    target/jsonpatch/bin/python scripts/judge_differences.py target/release/deltaq {{pairs}}

# Build the simulator of the documents: the engine as WebAssembly. Chromium runs all rule scripts in it.
simulator:
    ./scripts/simulator.sh --check

# Known vulnerabilities in dependencies. Fetches the RustSec database from GitHub.
advisories:
    PATH="$(./scripts/tools.sh):$PATH" cargo deny --locked check advisories

# Measure the engine alone: time per command, memory per key.
bench-engine:
    cargo bench --locked --bench engine

# Measure 10,000 idle long polls: CPU, memory, wake-ups.
bench-idle-polls:
    cargo bench --locked --bench idle_polls

# Measure 1,000 watchers of a queue: CPU, delivery, adds beside them, a watcher that was away.
bench-watchers:
    cargo bench --locked --bench watchers

# Measure a Replace of 1,000,000 objects beside adds and pops.
bench-replace:
    cargo bench --locked --bench replace

# Measure durability: commits, checkpoints, starts, bytes on disk.
bench-journal *scenarios:
    cargo bench --locked --bench journal -- {{scenarios}}

# Measure scrapes of 1,000 queues with 1,000,000 keys beside pops.
bench-scrape:
    cargo bench --locked --bench scrape

# Measure the series of busy queues: memory, bytes in the store, the end of a minute, sums. Arguments: minutes, queues, a folder to keep.
bench-series *arguments:
    cargo bench --locked --bench series -- {{arguments}}

# Measure followers: what ten of them cost a producer, and a new follower of 1,000,000 keys.
bench-followers:
    cargo bench --locked --bench followers

# Measure indexes of 1,000,000 known objects: memory, acknowledgements, queries.
bench-indexes:
    cargo bench --locked --bench indexes

# Measure the cost of metrics, audit and tokens, and the behaviour under overload.
bench-operate *scenarios:
    cargo bench --locked --bench operate -- {{scenarios}}

# Compare deltaq with Redis, beanstalkd, NATS and PostgreSQL; writes docs/benchmarks.md.
bench-peers *args:
    cargo run --release --manifest-path benches/peers/Cargo.toml -- {{args}}

# Format the code.
fmt:
    cargo fmt

# Build the documents as a site in target/site, with the simulator and a search, and check its links. `./scripts/site.sh` alone needs no WebAssembly.
site:
    ./scripts/simulator.sh
    ./scripts/site.sh

# Build the container image with podman, and check it.
image:
    ./scripts/image.sh

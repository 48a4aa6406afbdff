# What one does every day. `just` lists it.

default:
    @just --list

# Run the server on 127.0.0.1:7070, with its database in ./deltaq-data.
run *args:
    cargo run --release -- serve {{args}}

# The fastest binary, target/optimized/deltaq: built, observed under load, built again.
release:
    ./scripts/release.sh

# All tests, as CI runs them.
test:
    ./scripts/test.sh

# Format, lints and docs, without running anything.
check:
    cargo fmt --check
    cargo clippy --all-targets --locked -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items --locked

# Unit and integration tests only; `just unit engine::` runs those whose name contains it.
unit *filter:
    cargo test --locked {{filter}}

# The engine alone: what a command costs, and what a key takes. Prints results.
bench-engine:
    cargo bench --locked --bench engine

# 10,000 long polls that wait: CPU, memory, wake-ups. Prints targets and results.
bench-idle-polls:
    cargo bench --locked --bench idle_polls

# Replace of 1,000,000 objects while others add and pop. Prints targets and results.
bench-replace:
    cargo bench --locked --bench replace

# Durability: commits, checkpoints, starts, bytes on disk. Prints targets and results.
bench-journal *scenarios:
    cargo bench --locked --bench journal -- {{scenarios}}

# Scrapes of 1,000 queues with 1,000,000 keys beside pops. Prints targets and results.
bench-scrape:
    cargo bench --locked --bench scrape

# What seeing and guarding costs, and what becomes of too much load. Prints results.
bench-operate *scenarios:
    cargo bench --locked --bench operate -- {{scenarios}}

# deltaq beside Redis, beanstalkd, NATS and PostgreSQL, and how its cost grows; writes docs/benchmarks.md.
bench-peers *args:
    cargo run --release --manifest-path benches/peers/Cargo.toml -- {{args}}

# The HTTP API against its own description.
schemathesis:
    ./scripts/schemathesis.sh

# Format the code.
fmt:
    cargo fmt

# Licences, sources and bans; with the network, known vulnerabilities too.
deny:
    cargo deny check

# Build the container image.
image:
    docker build -t deltaq .

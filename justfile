# What one does every day. `just` lists it.

default:
    @just --list

# Run the server in memory on 127.0.0.1:7070.
run *args:
    cargo run --release -- serve --in-memory {{args}}

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

# The benchmarks; each prints what it measures.
bench *args:
    cargo bench --locked {{args}}

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

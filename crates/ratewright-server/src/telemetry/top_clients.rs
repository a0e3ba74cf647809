//! The clients that one policy denied most, over the last five minutes.
//!
//! ```text
//!   minute   ─┬─────┬─────┬─────┬─────┬─────┬─► now
//!             │  ▒  │  ▒  │  ▒  │  ▒  │  ▓ ←── denials go here
//!             └─────┴─────┴─────┴─────┴─────┘   older minutes are forgotten
//! ```
//!
//! Each minute has a frequent-items sketch of fixed size. It keeps every client with more than a 36th of the denials,
//! with a lower and an upper bound of its count. Clients that appear only once are soon dropped.

use std::collections::HashMap;

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use ratewright_core::{Micros, Timestamp};

const MINUTE: u64 = Micros::from_secs(60).as_micros();

/// Minutes that are counted, including the current one.
const MINUTES: usize = 5;

/// The same as a duration.
pub(super) const WINDOW: Micros = Micros::new(MINUTE * MINUTES as u64);

/// Slots of a sketch; it uses three quarters of them.
const SKETCH_SLOTS: usize = 128;

/// The most clients that one policy remembers.
#[cfg(test)]
pub(super) const CLIENTS_MAX: usize = MINUTES * SKETCH_SLOTS / 4 * 3;

/// The clients that one policy denied.
#[derive(Debug)]
pub(super) struct TopClients {
    minutes: [MinuteSketch; MINUTES],
    /// The time of the last denial.
    pub(super) last_at: Timestamp,
}

/// The clients denied within one minute.
#[derive(Debug)]
struct MinuteSketch {
    minute: u64,
    clients: FrequentItemsSketch<String>,
}

/// How often one client was denied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClientCount {
    pub(super) client: String,
    pub(super) at_least: u64,
    pub(super) at_most: u64,
}

impl Default for TopClients {
    fn default() -> Self {
        Self { minutes: std::array::from_fn(|_| MinuteSketch::of(0)), last_at: Timestamp::default() }
    }
}

impl TopClients {
    /// Counts a denial.
    pub(super) fn add(&mut self, client: &str, now: Timestamp) {
        let minute = minute(now);
        let sketch = &mut self.minutes[usize::try_from(minute).unwrap_or(0) % MINUTES];
        if sketch.minute != minute {
            *sketch = MinuteSketch::of(minute);
        }
        sketch.clients.update_ref(client);
        self.last_at = now;
    }

    /// The denied clients with their counts.
    pub(super) fn read(&self, now: Timestamp) -> Vec<ClientCount> {
        let since = minute(now).saturating_sub(MINUTES as u64 - 1);
        let recent = || self.minutes.iter().filter(|sketch| (since..=minute(now)).contains(&sketch.minute));
        // A sketch may have dropped a client.
        let missed: u64 = recent().map(|sketch| sketch.clients.maximum_error()).sum();
        let mut counts: HashMap<String, u64> = HashMap::new();
        for row in recent().flat_map(|sketch| sketch.clients.frequent_items(ErrorType::NoFalseNegatives)) {
            *counts.entry(row.item().clone()).or_default() += row.lower_bound();
        }
        let counted = |(client, n)| ClientCount { client, at_least: n, at_most: n + missed };
        counts.into_iter().map(counted).collect()
    }

    /// How many clients are remembered.
    #[cfg(test)]
    pub(super) fn n_clients(&self) -> usize {
        self.minutes.iter().map(|sketch| sketch.clients.num_active_items()).sum()
    }
}

impl MinuteSketch {
    fn of(minute: u64) -> Self {
        let clients = FrequentItemsSketch::new(SKETCH_SLOTS).expect("a power of two");
        Self { minute, clients }
    }
}

fn minute(at: Timestamp) -> u64 {
    at.as_micros() / MINUTE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: u64) -> Timestamp {
        Timestamp::from_micros(1_700_000_000_000_000 + minutes * MINUTE)
    }

    fn of<'a>(counted: &'a [ClientCount], client: &str) -> Option<&'a ClientCount> {
        counted.iter().find(|counted| counted.client == client)
    }

    #[test]
    fn five_minutes_are_remembered_and_no_more() {
        let mut top_clients = TopClients::default();
        (0..5).for_each(|minute| top_clients.add("a", at(minute)));
        let seen = |top_clients: &TopClients, minute| {
            of(&top_clients.read(at(minute)), "a").map_or(0, |a| a.at_least)
        };
        assert_eq!([4, 5, 8, 9].map(|minute| seen(&top_clients, minute)), [5, 4, 1, 0]);
        top_clients.add("a", at(9));
        assert_eq!(seen(&top_clients, 9), 1, "an old minute does not return with its slot");
    }

    #[test]
    fn a_flood_of_single_denials_does_not_hide_a_frequent_client() {
        let mut top_clients = TopClients::default();
        for n in 0..100_000 {
            top_clients.add(&format!("flood-{n}"), at(n % 5));
            if n % 10 == 0 {
                top_clients.add("often", at(n % 5));
            }
        }
        assert!(top_clients.n_clients() <= CLIENTS_MAX, "{}", top_clients.n_clients());
        let counted = top_clients.read(at(4));
        let often = of(&counted, "often").expect("it is remembered");
        assert!(often.at_least <= 10_000 && 10_000 <= often.at_most, "{often:?}");
        assert!(counted.iter().all(|other| other.at_least <= often.at_least));
    }
}

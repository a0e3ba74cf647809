//! Who was denied most under one policy, over the last five minutes.
//!
//! ```text
//!   minute   ─┬─────┬─────┬─────┬─────┬─────┬─► now
//!             │  ▒  │  ▒  │  ▒  │  ▒  │  ▓ ←── denials go here
//!             └─────┴─────┴─────┴─────┴─────┘   what is older than these five is forgotten
//! ```
//!
//! Each minute has a frequent-items sketch of fixed size: of any stream it keeps those clients that make up more than
//! a 36th of it, and of each it knows a lower and an upper bound. A flood of clients that come once washes out itself.

use std::collections::HashMap;

use datasketches::frequencies::{ErrorType, FrequentItemsSketch};
use ratewright_core::{Micros, Timestamp};

const MINUTE: u64 = Micros::from_secs(60).as_micros();

/// Minutes that are looked back on, the present one included.
const MINUTES: usize = 5;

/// The same as a duration.
pub(super) const WINDOW: Micros = Micros::new(MINUTE * MINUTES as u64);

/// Slots of a sketch, three quarters of which are used.
const SLOTS: usize = 128;

/// The most clients that a tally remembers.
#[cfg(test)]
pub(super) const CLIENTS_MAX: usize = MINUTES * SLOTS / 4 * 3;

/// Who was denied under one policy.
#[derive(Debug)]
pub(super) struct Tally {
    slots: [Slot; MINUTES],
    /// When somebody was denied last.
    pub(super) last_at: Timestamp,
}

/// Who was denied within one minute.
#[derive(Debug)]
struct Slot {
    minute: u64,
    clients: FrequentItemsSketch<String>,
}

/// How often one client was denied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tallied {
    pub(super) client: String,
    pub(super) at_least: u64,
    pub(super) at_most: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { slots: std::array::from_fn(|_| Slot::of(0)), last_at: Timestamp::default() }
    }
}

impl Tally {
    /// Counts a denial.
    pub(super) fn add(&mut self, client: &str, now: Timestamp) {
        let minute = minute(now);
        let slot = &mut self.slots[usize::try_from(minute).unwrap_or(0) % MINUTES];
        if slot.minute != minute {
            *slot = Slot::of(minute);
        }
        slot.clients.update_ref(client);
        self.last_at = now;
    }

    /// Who was denied, and how often.
    pub(super) fn read(&self, now: Timestamp) -> Vec<Tallied> {
        let since = minute(now).saturating_sub(MINUTES as u64 - 1);
        let recent = || self.slots.iter().filter(|slot| (since..=minute(now)).contains(&slot.minute));
        // A client that a sketch does not show may have been washed out of it.
        let missed: u64 = recent().map(|slot| slot.clients.maximum_error()).sum();
        let mut counts: HashMap<String, u64> = HashMap::new();
        for row in recent().flat_map(|slot| slot.clients.frequent_items(ErrorType::NoFalseNegatives)) {
            *counts.entry(row.item().clone()).or_default() += row.lower_bound();
        }
        let tallied = |(client, n)| Tallied { client, at_least: n, at_most: n + missed };
        counts.into_iter().map(tallied).collect()
    }

    /// How many clients are remembered.
    #[cfg(test)]
    pub(super) fn n_clients(&self) -> usize {
        self.slots.iter().map(|slot| slot.clients.num_active_items()).sum()
    }
}

impl Slot {
    fn of(minute: u64) -> Self {
        let clients = FrequentItemsSketch::new(SLOTS).expect("a power of two");
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

    fn of<'a>(tallied: &'a [Tallied], client: &str) -> Option<&'a Tallied> {
        tallied.iter().find(|tallied| tallied.client == client)
    }

    #[test]
    fn five_minutes_are_remembered_and_no_more() {
        let mut tally = Tally::default();
        (0..5).for_each(|minute| tally.add("a", at(minute)));
        let seen = |tally: &Tally, minute| of(&tally.read(at(minute)), "a").map_or(0, |a| a.at_least);
        assert_eq!([4, 5, 8, 9].map(|minute| seen(&tally, minute)), [5, 4, 1, 0]);
        tally.add("a", at(9));
        assert_eq!(seen(&tally, 9), 1, "an old minute does not come back with its slot");
    }

    #[test]
    fn a_flood_of_clients_that_come_once_does_not_hide_who_comes_often() {
        let mut tally = Tally::default();
        for n in 0..100_000 {
            tally.add(&format!("flood-{n}"), at(n % 5));
            if n % 10 == 0 {
                tally.add("often", at(n % 5));
            }
        }
        assert!(tally.n_clients() <= CLIENTS_MAX, "{}", tally.n_clients());
        let tallied = tally.read(at(4));
        let often = of(&tallied, "often").expect("it is remembered");
        assert!(often.at_least <= 10_000 && 10_000 <= often.at_most, "{often:?}");
        assert!(tallied.iter().all(|other| other.at_least <= often.at_least));
    }
}

//! The latest time seen: one for a single server; in a cluster one for each slot, because the clocks of its nodes may differ.

use crate::clock_setback::TimeSeen;

const SLOTS: u16 = 16_384;

/// The times seen, by slot.
#[derive(Debug)]
pub(super) struct TimesSeen(Box<[TimeSeen]>);

impl TimesSeen {
    pub(super) fn new(is_cluster: bool) -> Self {
        let n = if is_cluster { SLOTS } else { 1 };
        Self((0..n).map(|_| TimeSeen::default()).collect())
    }

    /// The times that the node of this key has shown.
    pub(super) fn of(&self, key: Option<&String>) -> &TimeSeen {
        let slot = if self.0.len() == 1 { 0 } else { key.map_or(0, |key| slot(key)) };
        &self.0[usize::from(slot)]
    }
}

/// The slot of a key: of its hash tag, if it has one.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM, as Redis Cluster has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of the Redis Cluster specification, and of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("ratelimit:login:{foo}"), 12_182);
        assert_eq!(slot("{}"), crc16(b"{}") % SLOTS);
    }
}

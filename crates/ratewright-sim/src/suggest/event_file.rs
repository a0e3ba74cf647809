//! The requests of a log in a few bytes each, to be read several times.
//!
//! An event is the time since the one before, and the number of its client, both as variable-length integers. Clients are numbered in the
//! order of their first request; the name follows the first event of each. So memory grows with the number of
//! clients, not with the log, and names are not held in memory.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use ratewright_core::Timestamp;

use crate::clients::{ClientHasher, ClientId, IdentityHasher};

/// Where events are kept: memory, or a temporary file.
pub type EventFile = Box<dyn ReadWriteSeek>;

/// Something that can be written, and then read several times.
pub trait ReadWriteSeek: Read + Write + Seek {}

impl<T: Read + Write + Seek> ReadWriteSeek for T {}

const BUFFER: usize = 256 * 1024;

/// The longest name of a client, in bytes.
const NAME_MAX: usize = 256;

/// Writes events.
pub(super) struct EventWriter {
    file: BufWriter<EventFile>,
    hasher: ClientHasher,
    numbers: HashMap<ClientId, u32, BuildHasherDefault<IdentityHasher>>,
    last: Timestamp,
    n_events: u64,
}

/// Reads events, as often as needed.
pub(super) struct EventReader {
    file: EventFile,
    n_events: u64,
    n_clients: u32,
}

impl EventWriter {
    pub(super) fn new(file: EventFile) -> Self {
        Self {
            file: BufWriter::with_capacity(BUFFER, file),
            hasher: ClientHasher::default(),
            numbers: HashMap::default(),
            last: Timestamp::default(),
            n_events: 0,
        }
    }

    pub(super) fn hasher(&self) -> &ClientHasher {
        &self.hasher
    }

    /// Adds an event. Events come in time order.
    pub(super) fn add(
        &mut self,
        at: Timestamp,
        id: ClientId,
        name: impl FnOnce() -> String,
    ) -> io::Result<()> {
        let n_known = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(id).or_insert(n_known);
        write_number(&mut self.file, at.since(self.last).as_micros())?;
        write_number(&mut self.file, u64::from(number))?;
        if number == n_known {
            let name = name();
            let mut end = name.len().min(NAME_MAX);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            let name = name.as_bytes().get(..end).unwrap_or_default();
            write_number(&mut self.file, name.len() as u64)?;
            self.file.write_all(name)?;
        }
        self.last = self.last.max(at);
        self.n_events += 1;
        Ok(())
    }

    pub(super) fn finish(self) -> io::Result<EventReader> {
        let n_clients = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(EventReader { file, n_events: self.n_events, n_clients })
    }
}

impl EventReader {
    pub(super) fn n_events(&self) -> u64 {
        self.n_events
    }

    pub(super) fn n_clients(&self) -> usize {
        self.n_clients as usize
    }

    /// Calls `each` with the time and the client of each event.
    pub(super) fn each(&mut self, mut each: impl FnMut(Timestamp, u32)) -> io::Result<()> {
        self.each_with_name(|at, number, _| each(at, number))
    }

    /// The names of these clients, in their order.
    pub(super) fn names(&mut self, numbers: &[u32]) -> io::Result<Vec<String>> {
        let mut names = vec![String::new(); numbers.len()];
        if numbers.is_empty() {
            return Ok(names);
        }
        self.each_with_name(|_, number, name| {
            if let Some(name) = name {
                for (wanted, found) in numbers.iter().zip(&mut names) {
                    if *wanted == number {
                        *found = String::from_utf8_lossy(name).into_owned();
                    }
                }
            }
        })?;
        Ok(names)
    }

    fn each_with_name(&mut self, mut each: impl FnMut(Timestamp, u32, Option<&[u8]>)) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut file = BufReader::with_capacity(BUFFER, &mut self.file);
        let (mut now, mut n_known) = (0, 0);
        let mut name = Vec::new();
        for _ in 0..self.n_events {
            now += read_number(&mut file)?;
            let number = u32::try_from(read_number(&mut file)?).unwrap_or(u32::MAX);
            let is_new = number == n_known;
            if is_new {
                n_known += 1;
                let length = usize::try_from(read_number(&mut file)?).unwrap_or(NAME_MAX).min(NAME_MAX);
                name.resize(length, 0);
                file.read_exact(&mut name)?;
            }
            each(Timestamp::from_micros(now), number, is_new.then_some(name.as_slice()));
        }
        Ok(())
    }
}

fn write_number(file: &mut impl Write, mut number: u64) -> io::Result<()> {
    let mut bytes = [0; 10];
    let mut n_bytes = 0;
    while number >= 0x80 {
        bytes[n_bytes] = u8::try_from(number & 0x7f).unwrap_or(0) | 0x80;
        number >>= 7;
        n_bytes += 1;
    }
    bytes[n_bytes] = u8::try_from(number).unwrap_or(0);
    file.write_all(&bytes[..=n_bytes])
}

#[inline]
fn read_number(file: &mut impl BufRead) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = match file.fill_buf()?.first() {
            Some(byte) => *byte,
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        file.consume(1);
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Events read back as they were written, as often as they are read.
        #[test]
        fn events_read_back(events in prop::collection::vec((0u64..1 << 40, 0u8..5), 0..50)) {
            let mut writer = EventWriter::new(Box::new(io::Cursor::new(Vec::new())));
            let mut at = 1_700_000_000_000_000;
            let mut expected = Vec::new();
            for (step, client) in events {
                at += step;
                let id = writer.hasher().id(&[client]);
                writer.add(Timestamp::from_micros(at), id, || format!("client {client}")).unwrap();
                expected.push((at, format!("client {client}")));
            }
            let mut reader = writer.finish().unwrap();
            for _ in 0..2 {
                let mut read = Vec::new();
                reader.each(|at, number| read.push((at.as_micros(), number))).unwrap();
                let numbers: Vec<u32> = read.iter().map(|event| event.1).collect();
                let names = reader.names(&numbers).unwrap();
                let read: Vec<_> = read.into_iter().zip(names).map(|((at, _), name)| (at, name)).collect();
                prop_assert_eq!(&read, &expected);
            }
        }
    }
}

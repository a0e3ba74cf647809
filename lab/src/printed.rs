//! What a process prints, with a deadline for all that is read from it.

use std::io::{Error, ErrorKind, Read, Result};
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionbio;

use crate::PATIENCE;

/// The output of a process, which can be read for a minute. A read of a process that neither prints nor ends would never
/// return.
#[derive(Debug)]
pub struct Printed<R> {
    pipe: R,
    deadline: Instant,
}

impl<R: Read + AsFd> Printed<R> {
    /// Reads from this pipe.
    ///
    /// # Panics
    /// If it cannot be read without blocking, as a pipe can.
    pub fn by(pipe: R) -> Self {
        ioctl_fionbio(&pipe, true).expect("a pipe");
        Self { pipe, deadline: Instant::now() + PATIENCE }
    }

    /// Sets the deadline to one minute from now.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + PATIENCE;
    }
}

impl<R: Read> Read for Printed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut pause = Duration::from_micros(250);
        loop {
            if Instant::now() >= self.deadline {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    "deadline for reading the process's output passed",
                ));
            }
            match self.pipe.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(pause),
                result => return result,
            }
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_printed_is_read_to_its_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"hello").unwrap();
        drop(writer);
        let mut text = String::new();
        Printed::by(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_process_that_prints_nothing_is_not_waited_for_for_ever() {
        let (reader, _silent) = std::io::pipe().unwrap();
        let printed = Printed { deadline: Instant::now(), ..Printed::by(reader) };
        let error = std::io::read_to_string(printed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    /// The deadline is for all of it: a line each second does not move it.
    #[test]
    fn a_process_that_prints_without_end_is_cut_off() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let printed = Printed { deadline: Instant::now(), ..Printed::by(reader) };
        let printing = std::thread::spawn(move || while writer.write_all(b"line\n").is_ok() {});
        assert!(std::io::read_to_string(printed).is_err());
        crate::join(printing, "it ends with its reader");
    }
}

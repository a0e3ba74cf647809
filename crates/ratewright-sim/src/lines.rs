//! The lines of a log, of bounded length.

use std::io::{self, Read};

use memchr::{memchr, memrchr};

/// The longest line, in bytes. The rest of a longer one is skipped, and the line cannot be read.
pub(crate) const LINE_MAX: usize = 64 * 1024;

/// Some programs begin a text with it.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Bytes that are read at once.
const BUFFER: usize = 4 * LINE_MAX;

/// Reads lines.
pub(crate) struct Lines {
    log: Box<dyn Read>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes that may still be read.
    n_bytes_left: u64,
    /// Lines so far.
    n_lines: u64,
    is_at_end: bool,
    /// An error of the last read that was not returned yet: the lines before it come first.
    failed: Option<io::Error>,
}

/// One line.
#[derive(Debug)]
pub(crate) struct RawLine<'a> {
    /// Its bytes, without the newline. If it is too long, the first of them.
    pub(crate) bytes: &'a [u8],
    /// Its number, from 1.
    pub(crate) number: u64,
    /// True if it is longer than [`LINE_MAX`].
    pub(crate) is_too_long: bool,
}

impl Lines {
    /// The lines of a log. More than `n_bytes_max` bytes are an error.
    pub(crate) fn new(log: Box<dyn Read>, n_bytes_max: u64) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self {
            log,
            buffer,
            start: 0,
            end: 0,
            n_bytes_left: n_bytes_max,
            n_lines: 0,
            is_at_end: false,
            failed: None,
        }
    }

    /// The whole lines in the first [`LINE_MAX`] bytes of the log, without consuming them. They do not depend on how much a read returns.
    /// An error behind them is returned after its lines.
    pub(crate) fn peek(&mut self) -> io::Result<&[u8]> {
        while !self.is_at_end && self.end - self.start < LINE_MAX {
            if let Err(error) = self.fill() {
                if self.start == self.end {
                    return Err(error);
                }
                self.failed = Some(error);
                break;
            }
        }
        let start = &self.buffer[self.start..self.end];
        let is_whole = self.is_at_end && start.len() <= LINE_MAX;
        let start = start.get(..LINE_MAX).unwrap_or(start);
        let end = if is_whole { None } else { memrchr(b'\n', start) };
        let start = end.and_then(|end| start.get(..=end)).unwrap_or(start);
        Ok(start.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(start))
    }

    /// The next line that is not empty; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        loop {
            let Some((mut from, to, is_too_long)) = self.find()? else { return Ok(None) };
            self.n_lines += 1;
            if self.n_lines == 1 && self.buffer[from..to].starts_with(&BYTE_ORDER_MARK) {
                from += BYTE_ORDER_MARK.len();
            }
            let line = &self.buffer[from..to];
            if is_too_long || !matches!(line, [] | [b'\r']) {
                // Borrowed anew: the compiler does not see that the loop ends here.
                let bytes = &self.buffer[from..to];
                return Ok(Some(RawLine { bytes, number: self.n_lines, is_too_long }));
            }
        }
    }

    /// Where the next line begins and ends in the buffer, and whether it is too long.
    #[inline]
    fn find(&mut self) -> io::Result<Option<(usize, usize, bool)>> {
        let mut n_searched = 0;
        loop {
            let rest = &self.buffer[self.start..self.end];
            if let Some(length) = rest.get(n_searched..).and_then(|rest| memchr(b'\n', rest)) {
                let (from, length) = (self.start, n_searched + length);
                self.start += length + 1;
                return Ok(Some((from, from + length.min(LINE_MAX), length > LINE_MAX)));
            }
            n_searched = rest.len();
            if n_searched > LINE_MAX {
                return self.skip_long_line().map(Some);
            }
            if self.is_at_end {
                let (from, to) = (self.start, self.end);
                self.start = self.end;
                return Ok((from < to).then_some((from, to, false)));
            }
            self.fill()?;
        }
    }

    /// Skips the rest of a line that is too long, and keeps its beginning at the start of the buffer.
    #[cold]
    fn skip_long_line(&mut self) -> io::Result<(usize, usize, bool)> {
        self.buffer.copy_within(self.start..self.start + LINE_MAX, 0);
        loop {
            (self.start, self.end) = (LINE_MAX, LINE_MAX);
            self.fill()?;
            let read = &self.buffer[LINE_MAX..self.end];
            if let Some(length) = memchr(b'\n', read) {
                self.start = LINE_MAX + length + 1;
                break;
            }
            if self.is_at_end {
                self.start = self.end;
                break;
            }
        }
        Ok((0, LINE_MAX, true))
    }

    /// Reads more bytes behind those that are there.
    fn fill(&mut self) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            self.is_at_end = true;
            return Err(error);
        }
        if self.start > LINE_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let n_read = loop {
            match self.log.read(&mut self.buffer[self.end..]) {
                Ok(n_read) => break n_read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        self.is_at_end = n_read == 0;
        self.end += n_read;
        let n_bytes = n_read as u64;
        let too_large = || io::Error::other("the log is larger than --max-size after decompression");
        self.n_bytes_left = self.n_bytes_left.checked_sub(n_bytes).ok_or_else(too_large)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns at most these numbers of bytes per read.
    struct Portions(Vec<u8>, usize, usize);

    impl Read for Portions {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let rest = &self.0[self.1..];
            let n = rest.len().min(self.2).min(buffer.len());
            buffer[..n].copy_from_slice(&rest[..n]);
            self.1 += n;
            Ok(n)
        }
    }

    fn all(text: &[u8], portion: usize) -> Vec<(Vec<u8>, u64, bool)> {
        let mut lines = Lines::new(Box::new(Portions(text.to_vec(), 0, portion)), u64::MAX);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line.bytes.to_vec(), line.number, line.is_too_long));
        }
        found
    }

    #[test]
    fn empty_lines_count_but_are_left_out_and_the_last_line_needs_no_newline() {
        let text = b"a\n\nbc\r\n\r\nd";
        let expected = [(b"a".to_vec(), 1, false), (b"bc\r".to_vec(), 3, false), (b"d".to_vec(), 5, false)];
        for portion in 1..12 {
            assert_eq!(all(text, portion), expected);
        }
        assert_eq!(all(b"", 1), []);
        assert_eq!(all(b"\n", 1), []);
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let text = b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n";
        for portion in 1..12 {
            let expected = [(b"a".to_vec(), 1, false), (b"\xef\xbb\xbfb".to_vec(), 2, false)];
            assert_eq!(all(text, portion), expected);
        }
    }

    /// Detection must not depend on how much a read returns: a pipe returns less than a file.
    #[test]
    fn the_beginning_of_a_log_does_not_depend_on_the_reads() {
        let text: Vec<u8> = (0..40_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let beginning = |portion| {
            let mut lines = Lines::new(Box::new(Portions(text.clone(), 0, portion)), u64::MAX);
            lines.peek().unwrap().to_vec()
        };
        let expected = beginning(BUFFER);
        assert!(expected.len() <= LINE_MAX && expected.len() > LINE_MAX - 10 && expected.ends_with(b"\n"));
        for portion in [997, 4_096, LINE_MAX, LINE_MAX + 1] {
            assert_eq!(beginning(portion), expected);
        }
    }

    #[test]
    fn a_log_above_its_size_is_an_error() {
        let mut lines = Lines::new(Box::new(&b"ab\ncd\n"[..]), 5);
        assert!(lines.next().is_err());
        let mut lines = Lines::new(Box::new(&b"ab\ncd\n"[..]), 6);
        assert_eq!(lines.next().unwrap().unwrap().bytes, b"ab");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The lines are those of `split`, however the bytes arrive; long ones are cut.
        #[test]
        fn lines_do_not_depend_on_the_reads(
            lengths in prop::collection::vec(prop_oneof![0usize..5, LINE_MAX - 2..LINE_MAX + 3, Just(5 * LINE_MAX)], 0..6),
            portion in prop_oneof![1usize..9, Just(LINE_MAX), Just(BUFFER), Just(BUFFER - 1)],
            has_last_newline: bool,
        ) {
            // One byte at a time would take too long for long lines.
            let portion = if lengths.iter().sum::<usize>() > 1_000 { portion.max(997) } else { portion };
            let mut text = Vec::new();
            let mut expected = Vec::new();
            for (n, length) in lengths.iter().enumerate() {
                text.extend(std::iter::repeat_n(b'a' + u8::try_from(n).unwrap(), *length));
                text.push(b'\n');
                if *length > 0 {
                    let cut = vec![b'a' + u8::try_from(n).unwrap(); (*length).min(LINE_MAX)];
                    expected.push((cut, n as u64 + 1, *length > LINE_MAX));
                }
            }
            if !has_last_newline {
                text.pop();
            }
            prop_assert!(all(&text, portion) == expected);
        }
    }
}

//! Compressed logs: gzip and zstd are recognised by their first bytes, whatever the file is called.
//!
//! Both formats allow several members one after the other (`cat a.gz b.gz`, appending rotation): all are read.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The first frame may be a skippable one: the last three bytes of its magic number.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Bytes that are read at once.
const BUFFER: usize = 128 * 1024;

/// Bytes that zstd decodes before they are handed on.
const DECODED_AHEAD: usize = 256 * 1024;

/// The largest zstd window, which is held in memory: that of `zstd --long`, and of `zstd` without options (8 MiB).
const WINDOW_MAX: u64 = 128 * 1024 * 1024;

/// The text of a log, decompressed if it is compressed.
pub(crate) fn decompress(log: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut log = BufReader::with_capacity(BUFFER, log);
    let start = fill(&mut log)?;
    if start.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(log)));
    }
    if start.starts_with(&ZSTD) || start.get(1..4) == Some(&ZSTD_SKIPPABLE) && start[0] & 0xf0 == 0x50 {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        return Ok(Box::new(ZstdFrames { log, decoder, is_in_frame: false }));
    }
    Ok(Box::new(log))
}

/// The buffered bytes, at least one unless the log has ended. A read that was interrupted is repeated.
fn fill(log: &mut BufReader<Box<dyn Read>>) -> io::Result<&[u8]> {
    loop {
        match log.fill_buf() {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(log.buffer())
}

/// All frames of a zstd file.
struct ZstdFrames {
    log: BufReader<Box<dyn Read>>,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl Read for ZstdFrames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.is_in_frame && !self.decoder.is_finished() {
                let ahead = BlockDecodingStrategy::UptoBytes(DECODED_AHEAD);
                self.decoder.decode_blocks(&mut self.log, ahead).map_err(invalid)?;
                continue;
            }
            self.is_in_frame = false;
            if fill(&mut self.log)?.is_empty() {
                return Ok(0);
            }
            match self.decoder.reset(&mut self.log) {
                Ok(()) => self.is_in_frame = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => skip(&mut self.log, u64::from(length))?,
                Err(error) => return Err(invalid(error)),
            }
        }
    }
}

fn skip(log: &mut BufReader<Box<dyn Read>>, n_bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut log.take(n_bytes), &mut io::sink())?;
    if skipped < n_bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid zstd data: {error}"))
}

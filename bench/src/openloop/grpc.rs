//! A call over HTTP/2, in as few frames as it takes.
//!
//! Header fields are written without compression, and those of answers are not read: an answer that begins and ends with the same head is a
//! refusal, and any other has a message.

use super::Talk;

/// Makes one call, again and again.
pub(crate) struct Grpc {
    /// Header fields of the call.
    head: Vec<u8>,
    /// The call's message with its prefix.
    call: Vec<u8>,
    /// The stream of the call under way.
    stream: u32,
    /// Received bytes that are not a whole frame yet.
    heard: Vec<u8>,
    has_message: bool,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame's length, kind, flags and stream.
const FRAME: usize = 9;

impl Grpc {
    pub(crate) fn new(address: &str, path: &str, call: Vec<u8>) -> Self {
        // POST and http by their numbers, the rest as text behind the numbers of their names, or behind the name.
        let length = |text: &str| u8::try_from(text.len()).ok().filter(|n| *n < 0x7f).expect("a short text");
        let text = |text: &str| [&[length(text)][..], text.as_bytes()].concat();
        let head = [
            vec![0x83, 0x86, 0x04],
            text(path),
            vec![0x01],
            text(address),
            vec![0x0f, 0x10],
            text("application/grpc"),
            vec![0x00],
            text("te"),
            text("trailers"),
        ];
        Self { head: head.concat(), call, stream: 0, heard: Vec::new(), has_message: false }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl Talk for Grpc {
    /// With a window that no run fills.
    fn begin(&self) -> Vec<u8> {
        let window = frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[]), window].concat()
    }

    fn request(&mut self) -> Vec<u8> {
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        self.has_message = false;
        let head = frame(HEADERS, END_HEADERS, self.stream, &self.head);
        [head, frame(DATA, END_STREAM, self.stream, &self.call)].concat()
    }

    fn hear(&mut self, bytes: &[u8]) -> bool {
        self.heard.extend_from_slice(bytes);
        let mut is_complete = false;
        while let Some([a, b, c, kind, flags, stream @ ..]) = self.heard.first_chunk::<FRAME>() {
            let end = FRAME + u32::from_be_bytes([0, *a, *b, *c]) as usize;
            if self.heard.len() < end {
                break;
            }
            assert_ne!(*kind, GO_AWAY, "the connection is kept");
            if u32::from_be_bytes(*stream) == self.stream {
                self.has_message |= *kind == DATA;
                is_complete |= flags & END_STREAM != 0 && *kind <= HEADERS;
            }
            self.heard.drain(..end);
        }
        assert!(!is_complete || self.has_message, "every call is answered");
        is_complete
    }
}

//! A GET over HTTP/1.1, whose answer tells its length.

use super::Talk;

/// Asks for one path.
pub(crate) struct Http1 {
    request: String,
    /// The answer's head so far, until its end is known.
    head: Vec<u8>,
    /// How much of the answer's body is to come, once that is known.
    left: Option<usize>,
}

impl Http1 {
    pub(crate) fn new(address: &str, path: &str) -> Self {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        Self { request, head: Vec::new(), left: None }
    }
}

impl Talk for Http1 {
    fn begin(&self) -> Vec<u8> {
        Vec::new()
    }

    fn request(&mut self) -> Vec<u8> {
        self.left = None;
        self.head.clear();
        self.request.clone().into_bytes()
    }

    fn hear(&mut self, bytes: &[u8]) -> bool {
        let left = if let Some(left) = self.left {
            left.checked_sub(bytes.len())
        } else {
            self.head.extend_from_slice(bytes);
            let Some(end) = self.head.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
            length(&self.head[..end]).checked_sub(self.head.len() - end - 4)
        };
        self.left = Some(left.expect("no more than the answer"));
        left == Some(0)
    }
}

/// How long the body behind this head is.
fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "every request is allowed: {head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    length.and_then(|length| length.trim().parse().ok()).expect("an answer says its length")
}

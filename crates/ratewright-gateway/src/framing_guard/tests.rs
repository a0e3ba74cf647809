//! Valid streams pass unchanged, however they are split. Nothing follows a head with invalid framing.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::task::Waker;

const HEADER_MAX: usize = 8192;

/// A stream that arrives in pieces of these sizes, repeated, and then ends.
struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: Vec<usize>,
    turn: usize,
}

/// How the output ended.
#[derive(PartialEq, Eq, Debug)]
enum Ending {
    Eof,
    Silent,
    Broken,
}

/// The output of the guard.
struct Output {
    bytes: Vec<u8>,
    ending: Ending,
    /// The number of the rejected request, and the reason.
    rejected: Option<(u64, FramingError)>,
    n_kept_max: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let size = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        let (piece, rest) = self.bytes.split_at(size.min(self.bytes.len()).min(buf.remaining()));
        buf.put_slice(piece);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

/// Reads a stream to its end.
fn read(bytes: &[u8], sizes: &[usize]) -> Output {
    let mut stream = FramingGuard::new(Pieces { bytes, sizes: sizes.to_vec(), turn: 0 }, HEADER_MAX);
    let mut context = Context::from_waker(Waker::noop());
    let (mut out, mut n_kept_max) = (Vec::new(), 0);
    let ending = loop {
        let mut room = [0; 4096];
        let mut buf = ReadBuf::new(&mut room);
        match Pin::new(&mut stream).poll_read(&mut context, &mut buf) {
            Poll::Pending => break Ending::Silent,
            Poll::Ready(Err(_)) => break Ending::Broken,
            Poll::Ready(Ok(())) if buf.filled().is_empty() => break Ending::Eof,
            Poll::Ready(Ok(())) => out.extend_from_slice(buf.filled()),
        }
        n_kept_max = n_kept_max.max(stream.messages.n_kept());
    };
    let guard = stream.handle();
    let n_heads = stream.messages.n_heads();
    let rejected = (1..=n_heads).find_map(|number| guard.next_verdict().map(|framing| (number, framing)));
    Output { bytes: out, ending, rejected, n_kept_max }
}

/// Piece sizes: all at once, byte by byte, or random.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![Just(vec![4096]), Just(vec![1]), vec(1..40_usize, 1..8), vec(1..4096_usize, 1..8)]
}

/// Header lines that do not affect framing.
fn fields() -> impl Strategy<Value = String> {
    vec("[A-Za-z-]{1,20}-x: ?[ -~]{0,40}\r\n", 0..5).prop_map(|lines| lines.concat())
}

/// Body contents: random bytes, or a request.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    let request = b"GET /inner HTTP/1.1\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
    prop_oneof![vec(any::<u8>(), 1..300), Just(request.to_vec())]
}

/// A framing header, and its body.
fn bodies() -> impl Strategy<Value = (String, Vec<u8>)> {
    let length = contents().prop_map(|body| (format!("Content-Length: {}\r\n", body.len()), body));
    let chunk = (contents(), "(;[a-z]{1,9}(=\"?[ -~]{0,9})?)?", any::<bool>());
    let chunked =
        (vec(chunk, 0..4), "0{1,16}(;[a-z]{0,9})?", fields()).prop_map(|(chunks, last, trailers)| {
            let mut body = Vec::new();
            for (content, extension, is_upper) in chunks {
                let size =
                    if is_upper { format!("{:X}", content.len()) } else { format!("{:04x}", content.len()) };
                body.extend_from_slice(format!("{size}{extension}\r\n").as_bytes());
                body.extend_from_slice(&content);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(format!("{last}\r\n{trailers}\r\n").as_bytes());
            ("Transfer-Encoding: chunked\r\n".to_owned(), body)
        });
    prop_oneof![
        Just((String::new(), Vec::new())),
        Just(("content-length:0\r\n".to_owned(), Vec::new())),
        length,
        chunked
    ]
}

/// Valid requests.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    ("(\r\n){0,2}", "[A-Z]{3,7} /[a-z/]{0,30}", fields(), bodies(), fields()).prop_map(
        |(empty, target, before, (framing, body), after)| {
            let head = format!("{empty}{target} HTTP/1.1\r\n{before}{framing}{after}\r\n");
            [head.into_bytes(), body].concat()
        },
    )
}

/// Invalid header lines, with the expected error.
fn hostile() -> impl Strategy<Value = (&'static str, FramingError)> {
    use FramingError::*;
    prop::sample::select(vec![
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", LengthAndCoding),
        ("transfer-encoding: chunked\r\nCONTENT-LENGTH:0\r\n", LengthAndCoding),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", DuplicateLength),
        ("Content-Length: 0\r\nX: y\r\ncontent-length: 0\r\n", DuplicateLength),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", DuplicateLength),
        ("Content-Length: 5, 5\r\n", DuplicateLength),
        ("Content-Length: 5,5\r\n", DuplicateLength),
        ("Content-Length:\r\n", InvalidLength),
        ("Content-Length: +5\r\n", InvalidLength),
        ("Content-Length: -0\r\n", InvalidLength),
        ("Content-Length: 0x5\r\n", InvalidLength),
        ("Content-Length: 5 5\r\n", InvalidLength),
        ("Content-Length: 5;\r\n", InvalidLength),
        ("Content-Length: 18446744073709551616\r\n", InvalidLength),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", UnsupportedCoding),
        ("Transfer-Encoding: gzip, chunked\r\n", UnsupportedCoding),
        ("Transfer-Encoding: identity\r\n", UnsupportedCoding),
        ("Transfer-Encoding: xchunked\r\n", UnsupportedCoding),
        ("Transfer-Encoding: \"chunked\"\r\n", UnsupportedCoding),
        ("Transfer-Encoding:\r\n", UnsupportedCoding),
        ("X: y\r\n z\r\n", ObsoleteFold),
        ("X: y\r\n\tContent-Length: 5\r\n", ObsoleteFold),
        ("Content-Length : 5\r\n", InvalidName),
        ("X\t: y\r\n", InvalidName),
        (": y\r\n", InvalidName),
        ("X\r\n", NoColon),
        ("X: y\n", InvalidLineEnd),
        ("X: y\nContent-Length: 5\r\n", InvalidLineEnd),
        ("X: y\rContent-Length: 5\r\n", InvalidLineEnd),
        ("X: y\r\r\n", InvalidLineEnd),
        ("X: \0y\r\n", InvalidLineEnd),
    ])
}

/// Random HTTP tokens.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"GET / HTTP/1.1\r\n",
        b"POST /x HTTP/1.0\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"Content-Length: ",
        b"Transfer-Encoding: chunked\r\n",
        b"Host: a\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"\0",
        b":",
        b" ",
        b";",
        b"0",
        b"5",
        b"ffffffffffffffff",
        b"hello",
    ];
    let word =
        prop_oneof![8 => prop::sample::select(words).prop_map(<[u8]>::to_vec), 1 => vec(any::<u8>(), 0..20)];
    vec(word, 0..60).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn valid_streams_pass_unchanged(requests in vec(requests(), 0..6), cuts in cuts()) {
        let input = requests.concat();
        let out = read(&input, &cuts);
        prop_assert_eq!((out.ending, out.rejected), (Ending::Eof, None));
        prop_assert!(out.bytes == input);
    }

    /// The guard's purpose. Requests before the rejected head pass unchanged; the head itself passes, so that it gets a
    /// response.
    #[test]
    fn nothing_follows_a_rejected_head(
        before in vec(requests(), 0..4),
        (lines, framing) in hostile(),
        (some, others) in (fields(), fields()),
        after in vec(requests(), 0..3),
        cuts in cuts(),
    ) {
        let head = format!("POST /hostile HTTP/1.1\r\n{some}{lines}{others}\r\n").into_bytes();
        let due = [before.concat(), head].concat();
        let out = read(&[due.clone(), after.concat()].concat(), &cuts);
        let number = before.len() as u64 + 1;
        prop_assert_eq!((out.ending, out.rejected), (Ending::Silent, Some((number, framing))));
        prop_assert!(out.bytes == due);
    }

    #[test]
    fn a_body_with_invalid_framing_is_cut_off(
        before in vec(requests(), 0..3),
        chunks in prop::sample::select(vec![
            "\r\n", "x\r\n", "5 \r\nhello\r\n", "+5\r\nhello\r\n", "0x5\r\nhello\r\n", "00000000000000005\r\nhello\r\n",
            ";a\r\n", "5\nhello\r\n", "5\r\nhello\n", "5\r\nhello!\r\n", "5\r\nhello\r!", "5;a\nb\r\nhello\r\n",
            "5;a\rb\r\nhello\r\n", "0\n\r\n", "0\r\n\n", "0\r\nX: y\n\r\n", "0\r\nX\r\n\r\n", "0\r\n X: y\r\n\r\n",
            "0\r\nX : y\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n", "0\r\ntransfer-encoding: chunked\r\n\r\n",
        ]),
        cuts in cuts(),
    ) {
        let head = b"POST /broken HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
        let kept = [&before.concat()[..], head].concat();
        let input = [&kept[..], chunks.as_bytes(), b"GET /next HTTP/1.1\r\n\r\n"].concat();
        let out = read(&input, &cuts);
        prop_assert_eq!((out.ending, out.rejected), (Ending::Broken, None));
        prop_assert!(input.starts_with(&out.bytes));
        prop_assert!(kept.len() <= out.bytes.len() && out.bytes.len() < kept.len() + chunks.len());
    }

    /// Splitting the input changes nothing, little is kept, and no bytes are invented.
    #[test]
    fn random_input_is_read_the_same_however_it_is_split(soup in soup(), cuts in cuts()) {
        let (whole, cut) = (read(&soup, &[usize::MAX]), read(&soup, &cuts));
        prop_assert_eq!((whole.ending, whole.rejected), (cut.ending, cut.rejected));
        prop_assert!(soup.starts_with(&whole.bytes) && soup.starts_with(&cut.bytes));
        prop_assert!(cut.n_kept_max <= HEADER_MAX);
    }

    #[test]
    fn an_http2_preface_is_passed_through(rest in vec(any::<u8>(), 0..2000), cuts in cuts()) {
        let input = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &rest[..]].concat();
        let out = read(&input, &cuts);
        prop_assert_eq!((out.ending, out.rejected), (Ending::Eof, None));
        prop_assert!(out.bytes == input);
    }
}

#[test]
fn a_coding_is_for_http_1_1_only() {
    let head = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(head, &[7]).rejected, Some((1, FramingError::CodingVersion)));
}

#[test]
fn a_head_is_cut_where_it_is_too_long() {
    let head = |len: usize| {
        let value = "v".repeat(len - "GET / HTTP/1.1\r\nX: \r\n\r\n".len());
        format!("GET / HTTP/1.1\r\nX: {value}\r\n\r\n").into_bytes()
    };
    for cuts in [1, 1000, 4096] {
        let out = read(&head(HEADER_MAX), &[cuts]);
        assert_eq!((out.ending, out.bytes.len()), (Ending::Eof, HEADER_MAX));
        let out = read(&head(HEADER_MAX + 1), &[cuts]);
        assert_eq!((out.ending, out.bytes.len()), (Ending::Silent, HEADER_MAX));
    }
}

#[test]
fn chunk_extensions_and_trailers_are_bounded() {
    let body = |text: &str| format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{text}");
    let long = "a".repeat(HEADER_MAX);
    let many = "X: y\r\n".repeat(HEADER_MAX / 6 + 1);
    for text in
        [format!("5;{long}\r\nhello\r\n"), format!("0\r\nX: {long}\r\n\r\n"), format!("0\r\n{many}\r\n")]
    {
        for cuts in [1, 100, 4096] {
            assert_eq!(read(body(&text).as_bytes(), &[cuts]).ending, Ending::Broken);
        }
    }
}

/// Reads once.
fn read_on<I: AsyncRead + Unpin>(stream: &mut FramingGuard<I>) -> Poll<io::Result<usize>> {
    let mut room = [0; 4096];
    let mut buf = ReadBuf::new(&mut room);
    let polled = Pin::new(stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf);
    polled.map_ok(|()| buf.filled().len())
}

#[test]
fn a_tunnel_passes_everything() {
    let handshake = b"GET /chat HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let input = [&handshake[..], b"\x81\n\n", b"\n\nGET / HTTP/1.1\r\nX\r\n\r\nmore"].concat();
    let sizes = vec![handshake.len(), 2, 1000];
    let mut stream = FramingGuard::new(Pieces { bytes: &input, sizes, turn: 0 }, HEADER_MAX);
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(n)) if n == handshake.len()));
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(2))), "the beginning of a line is not held back");
    stream.handle().pass_through();
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(n)) if n == input.len() - handshake.len() - 2));
}

#[test]
fn a_tunnel_with_dropped_bytes_fails() {
    let input = b"GET /chat HTTP/1.1\r\nUpgrade: x\r\n\r\nearly\n\nmore";
    let mut stream = FramingGuard::new(Pieces { bytes: input, sizes: vec![1000], turn: 0 }, HEADER_MAX);
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(n)) if n == input.len() - "more".len()));
    stream.handle().pass_through();
    assert!(matches!(read_on(&mut stream), Poll::Ready(Err(_))));
}

/// Checks of HTTP/1.1 responses must not apply to HTTP/2 frames.
#[test]
fn http2_and_tunnels_are_distinguished_from_http1() {
    let read = |input: &[u8]| {
        let mut stream = FramingGuard::new(Pieces { bytes: input, sizes: vec![7], turn: 0 }, HEADER_MAX);
        while matches!(read_on(&mut stream), Poll::Ready(Ok(1..))) {}
        stream.handle()
    };
    assert!(read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_http1());
    assert!(!read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0").is_http1());
    let tunnel = read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    tunnel.pass_through();
    assert!(!tunnel.is_http1());
}

#[test]
fn a_usual_head_allocates_nothing() {
    let head = b"GET / HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nContent-Length: 3\r\n\r\nabc".repeat(9);
    let mut messages = MessageScanner::new(HEADER_MAX);
    let counted = allocation_counter::measure(|| {
        assert_eq!(messages.follow(&head), head.len());
        assert_eq!(messages.follow(&head[..24]) + messages.follow(&head[24..]), head.len());
    });
    assert_eq!((counted.count_total, messages.n_heads()), (0, 18));
}

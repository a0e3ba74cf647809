//! Streams that keep the rules come out whole, however they are cut; of others nothing comes out after the head that breaks one.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::task::Waker;

const HEADER_MAX: usize = 8192;

/// A stream that comes in pieces of these sizes, over and over, and then ends.
struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: Vec<usize>,
    turn: usize,
}

/// How it went.
#[derive(PartialEq, Eq, Debug)]
enum Ending {
    Eof,
    Silent,
    Broken,
}

/// What came out of a stream.
struct Out {
    bytes: Vec<u8>,
    ending: Ending,
    /// Which request is refused, and why.
    refused: Option<(u64, Framing)>,
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

/// Reads a stream as far as it goes.
fn read(bytes: &[u8], sizes: &[usize]) -> Out {
    let mut stream = Strict::new(Pieces { bytes, sizes: sizes.to_vec(), turn: 0 }, HEADER_MAX);
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
    let flag = stream.flag();
    let n_heads = stream.messages.n_heads();
    let refused = (1..=n_heads).find_map(|number| flag.take().map(|framing| (number, framing)));
    Out { bytes: out, ending, refused, n_kept_max }
}

/// Sizes of pieces: all at once, or byte by byte, or any.
fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![Just(vec![4096]), Just(vec![1]), vec(1..40_usize, 1..8), vec(1..4096_usize, 1..8)]
}

/// Lines of a head that say nothing of its end.
fn fields() -> impl Strategy<Value = String> {
    vec("[A-Za-z-]{1,20}-x: ?[ -~]{0,40}\r\n", 0..5).prop_map(|lines| lines.concat())
}

/// What may stand in a body: anything, and what looks like a request.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    let request = b"GET /inner HTTP/1.1\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n0\r\n\r\n";
    prop_oneof![vec(any::<u8>(), 1..300), Just(request.to_vec())]
}

/// The line that says how a body ends, and the body.
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

/// Requests that keep the rules.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    ("(\r\n){0,2}", "[A-Z]{3,7} /[a-z/]{0,30}", fields(), bodies(), fields()).prop_map(
        |(empty, target, before, (framing, body), after)| {
            let head = format!("{empty}{target} HTTP/1.1\r\n{before}{framing}{after}\r\n");
            [head.into_bytes(), body].concat()
        },
    )
}

/// Lines that break a rule, and which one it is.
fn hostile() -> impl Strategy<Value = (&'static str, Framing)> {
    use Framing::*;
    prop::sample::select(vec![
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", LengthAndCoding),
        ("transfer-encoding: chunked\r\nCONTENT-LENGTH:0\r\n", LengthAndCoding),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Lengths),
        ("Content-Length: 0\r\nX: y\r\ncontent-length: 0\r\n", Lengths),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", Lengths),
        ("Content-Length: 5, 5\r\n", Lengths),
        ("Content-Length: 5,5\r\n", Lengths),
        ("Content-Length:\r\n", Length),
        ("Content-Length: +5\r\n", Length),
        ("Content-Length: -0\r\n", Length),
        ("Content-Length: 0x5\r\n", Length),
        ("Content-Length: 5 5\r\n", Length),
        ("Content-Length: 5;\r\n", Length),
        ("Content-Length: 18446744073709551616\r\n", Length),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Coding),
        ("Transfer-Encoding: gzip, chunked\r\n", Coding),
        ("Transfer-Encoding: identity\r\n", Coding),
        ("Transfer-Encoding: xchunked\r\n", Coding),
        ("Transfer-Encoding: \"chunked\"\r\n", Coding),
        ("Transfer-Encoding:\r\n", Coding),
        ("X: y\r\n z\r\n", Folded),
        ("X: y\r\n\tContent-Length: 5\r\n", Folded),
        ("Content-Length : 5\r\n", Name),
        ("X\t: y\r\n", Name),
        (": y\r\n", Name),
        ("X\r\n", NoColon),
        ("X: y\n", LineEnd),
        ("X: y\nContent-Length: 5\r\n", LineEnd),
        ("X: y\rContent-Length: 5\r\n", LineEnd),
        ("X: y\r\r\n", LineEnd),
        ("X: \0y\r\n", LineEnd),
    ])
}

/// Rubbish that looks like requests from afar.
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
    fn what_keeps_the_rules_comes_out_whole(requests in vec(requests(), 0..6), cuts in cuts()) {
        let input = requests.concat();
        let out = read(&input, &cuts);
        prop_assert_eq!((out.ending, out.refused), (Ending::Eof, None));
        prop_assert!(out.bytes == input);
    }

    /// The law that it is there for. What stands before the head that is refused is untouched; the head itself is passed
    /// on, so that somebody answers it.
    #[test]
    fn nothing_follows_a_head_that_breaks_a_rule(
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
        prop_assert_eq!((out.ending, out.refused), (Ending::Silent, Some((number, framing))));
        prop_assert!(out.bytes == due);
    }

    #[test]
    fn a_body_that_breaks_a_rule_is_broken_off(
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
        prop_assert_eq!((out.ending, out.refused), (Ending::Broken, None));
        prop_assert!(input.starts_with(&out.bytes));
        prop_assert!(kept.len() <= out.bytes.len() && out.bytes.len() < kept.len() + chunks.len());
    }

    /// How a stream is cut makes no difference, and whatever comes, little is kept and nothing is made up.
    #[test]
    fn rubbish_is_read_in_one_way_only(soup in soup(), cuts in cuts()) {
        let (whole, cut) = (read(&soup, &[usize::MAX]), read(&soup, &cuts));
        prop_assert_eq!((whole.ending, whole.refused), (cut.ending, cut.refused));
        prop_assert!(soup.starts_with(&whole.bytes) && soup.starts_with(&cut.bytes));
        prop_assert!(cut.n_kept_max <= HEADER_MAX);
    }

    #[test]
    fn what_begins_like_http_2_is_passed_on(rest in vec(any::<u8>(), 0..2000), cuts in cuts()) {
        let input = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &rest[..]].concat();
        let out = read(&input, &cuts);
        prop_assert_eq!((out.ending, out.refused), (Ending::Eof, None));
        prop_assert!(out.bytes == input);
    }
}

#[test]
fn a_coding_is_for_http_1_1_only() {
    let head = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(head, &[7]).refused, Some((1, Framing::CodingOfOtherVersion)));
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
fn extensions_and_trailers_have_their_bounds() {
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

/// Reads what there is, and tells whether anything was.
fn read_on<I: AsyncRead + Unpin>(stream: &mut Strict<I>) -> Poll<io::Result<usize>> {
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
    let mut stream = Strict::new(Pieces { bytes: &input, sizes, turn: 0 }, HEADER_MAX);
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(n)) if n == handshake.len()));
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(2))), "the beginning of a line is not held back");
    stream.flag().let_through();
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(n)) if n == input.len() - handshake.len() - 2));
}

#[test]
fn a_tunnel_of_which_something_was_left_out_breaks() {
    let input = b"GET /chat HTTP/1.1\r\nUpgrade: x\r\n\r\nearly\n\nmore";
    let mut stream = Strict::new(Pieces { bytes: input, sizes: vec![1000], turn: 0 }, HEADER_MAX);
    assert!(matches!(read_on(&mut stream), Poll::Ready(Ok(n)) if n == input.len() - "more".len()));
    stream.flag().let_through();
    assert!(matches!(read_on(&mut stream), Poll::Ready(Err(_))));
}

/// What is known of HTTP/1.1 responses must not be applied to the frames of HTTP/2.
#[test]
fn http2_and_tunnels_are_told_from_http1() {
    let read = |input: &[u8]| {
        let mut stream = Strict::new(Pieces { bytes: input, sizes: vec![7], turn: 0 }, HEADER_MAX);
        while matches!(read_on(&mut stream), Poll::Ready(Ok(1..))) {}
        stream.flag()
    };
    assert!(read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_http1());
    assert!(!read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0").is_http1());
    let tunnel = read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    tunnel.let_through();
    assert!(!tunnel.is_http1());
}

#[test]
fn a_usual_head_costs_no_memory() {
    let head = b"GET / HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nContent-Length: 3\r\n\r\nabc".repeat(9);
    let mut messages = Messages::new(HEADER_MAX);
    let counted = allocation_counter::measure(|| {
        assert_eq!(messages.follow(&head), head.len());
        assert_eq!(messages.follow(&head[..24]) + messages.follow(&head[24..]), head.len());
    });
    assert_eq!((counted.count_total, messages.n_heads()), (0, 18));
}

//! What a page and a run may differ in: only what depends on time, each known by the name that stands before it.
//!
//! ```text
//!   x-ratelimit-reset: 1794756097        a time of day: as many digits
//!   "resetAfterSeconds":360              counts down, but not to 0: less by the seconds that passed at most
//!   date: Sun, 15 Nov 2026 15:15:36 GMT  a date
//!   "correlationId":"7d1c0f5a8be24c6f…"  an id that was made: 32 hexadecimal digits
//! ```
//!
//! Every other figure must be equal, however large it is.

/// A part of a text.
#[derive(PartialEq, Eq, Debug)]
enum Piece {
    /// Must be equal. Times of day, dates and ids are replaced by a word for them.
    Same(String),
    /// Seconds that are left of something.
    Left(u64),
}

/// How a value depends on time.
#[derive(Clone, Copy)]
enum Kind {
    /// Seconds, milliseconds or microseconds since 1970.
    Epoch,
    /// Seconds that are left.
    Left,
    /// Text until the end of the line or a quote.
    Date,
    /// 32 hexadecimal digits, unless a client chose it.
    Id,
}

/// What stands before such a value.
const VALUES: [(&str, Kind); 17] = [
    ("x-ratelimit-reset: ", Kind::Epoch),
    ("\"atUnixMs\":", Kind::Epoch),
    (" since ", Kind::Epoch),
    ("retry-after: ", Kind::Left),
    (";t=", Kind::Left),
    (" retry_after=", Kind::Left),
    ("Try again in ", Kind::Left),
    ("\"resetAfterSeconds\":", Kind::Left),
    ("\"retryAfterSeconds\":", Kind::Left),
    ("\"retryAfter\":", Kind::Left),
    ("\"timestamp\": \"", Kind::Date),
    ("\"timestamp\":\"", Kind::Date),
    ("date: ", Kind::Date),
    ("last-modified: ", Kind::Date),
    ("server: SimpleHTTP/", Kind::Date),
    ("correlationId\":\"", Kind::Id),
    ("x-correlation-id: ", Kind::Id),
];

/// Columns of our tables whose values count down.
const COLUMNS: [&str; 2] = ["FULL IN", "RETRY AFTER"];

/// Fields of a bucket in Redis; the next line has the value.
const FIELDS: [&str; 3] = ["full_at of ", "lastRefill", "opened_at"];

/// True if the texts that a command printed differ by time at most: of the day, or so many seconds that passed.
pub(in super::super) fn is_alike(command: &str, written: &str, printed: &str, n_seconds: u64) -> bool {
    let (written, printed) = (pieces(command, written), pieces(command, printed));
    let is_alike = |(written, printed): (&Piece, &Piece)| match (written, printed) {
        (Piece::Left(written), Piece::Left(printed)) => {
            let is_later = written.saturating_sub(*printed) <= n_seconds && *printed <= written + 1;
            is_later && (*printed > 0) == (*written > 0)
        }
        (written, printed) => written == printed,
    };
    written.len() == printed.len() && written.iter().zip(&printed).all(is_alike)
}

/// Takes a text apart.
fn pieces(command: &str, text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut before, mut columns) = ("", Vec::new());
    for line in text.lines() {
        if line.is_empty() {
            columns.clear();
        }
        if command.starts_with("redis-cli ") && command.contains(" TTL ") {
            pieces.extend(line.parse().ok().map(Piece::Left));
        } else if command.starts_with("redis-cli ") && command.contains(" LRANGE ") {
            pieces.push(Piece::Same(without_times_of_charges(line)));
        } else if FIELDS.iter().any(|field| before.starts_with(field)) {
            pieces.push(Piece::Same(without_epoch(line)));
        } else if before == "tokens" || command.ends_with(" tokens") {
            // Some thousandths of a token may come back meanwhile.
            pieces.push(Piece::Same(line.split('.').next().unwrap().to_owned()));
        } else if columns.is_empty() {
            push_values(line, &mut pieces);
        } else {
            push_columns(line, &columns, &mut pieces);
        }
        pieces.push(Piece::Same("\n".to_owned()));
        columns.extend(COLUMNS.iter().filter_map(|column| line.find(column)));
        before = line;
    }
    pieces
}

/// A line with named values.
fn push_values(line: &str, pieces: &mut Vec<Piece>) {
    let mut rest = line;
    while let Some((end, kind)) = first_value(rest) {
        let (before, value) = rest.split_at(end);
        let (blanks, value) = value.split_at(value.len() - value.trim_start().len());
        pieces.push(Piece::Same(format!("{before}{blanks}")));
        rest = push_value(value, kind, pieces);
    }
    pieces.push(Piece::Same(rest.to_owned()));
}

/// Where the first named value of a line begins. Headers begin their line.
fn first_value(line: &str) -> Option<(usize, Kind)> {
    let found = VALUES.iter().filter_map(|(name, kind)| {
        let at = line.find(name)?;
        let is_header = name.ends_with(": ");
        let begins = line.split_at(at).0.trim().is_empty();
        (begins || !is_header).then_some((at + name.len(), *kind))
    });
    found.min_by_key(|(end, _)| *end)
}

/// One value. Gives what comes after it.
fn push_value<'a>(text: &'a str, kind: Kind, pieces: &mut Vec<Piece>) -> &'a str {
    let split =
        |is_part: &dyn Fn(char) -> bool| text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()));
    let (piece, rest) = match kind {
        Kind::Epoch => {
            let (digits, rest) = split(&|c| c.is_ascii_digit());
            (Some(Piece::Same(without_epoch(digits))), rest)
        }
        Kind::Left => {
            let (digits, rest) = split(&|c| c.is_ascii_digit());
            (digits.parse().ok().map(Piece::Left), rest)
        }
        Kind::Date => (Some(Piece::Same("DATE".to_owned())), split(&|c| c != '"').1),
        Kind::Id => match split(&|c| c.is_ascii_hexdigit()) {
            (id, rest) if id.len() == 32 => (Some(Piece::Same("ID".to_owned())), rest),
            _ => (None, text),
        },
    };
    pieces.extend(piece);
    rest
}

/// A time of day: the number of its digits says its unit. A fraction of a microsecond may follow.
fn without_epoch(text: &str) -> String {
    let n_digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if n_digits < 10 { text.to_owned() } else { format!("EPOCH{n_digits}") }
}

/// A chunk of a log: `NEWEST UNITS COUNT SINCE: AFTER AFTER*COST …`.
fn without_times_of_charges(line: &str) -> String {
    let Some((head, charges)) = line.split_once(": ") else { return line.to_owned() };
    let head = head.split(' ').map(without_epoch);
    let costs =
        charges.split(' ').map(|charge| charge.split_once('*').map_or("1", |(_, cost)| cost).to_owned());
    head.chain([":".to_owned()]).chain(costs).collect::<Vec<_>>().join(" ")
}

/// A row of a table in which some columns count down: `600 s`.
fn push_columns(line: &str, columns: &[usize], pieces: &mut Vec<Piece>) {
    let (mut rest, mut n_read) = (line, 0);
    for &column in columns {
        let Some((before, value)) = column.checked_sub(n_read).and_then(|at| rest.split_at_checked(at))
        else {
            break;
        };
        pieces.push(Piece::Same(before.to_owned()));
        let n_digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        let (digits, after) = value.split_at(n_digits);
        pieces.extend(digits.parse().ok().map(Piece::Left));
        (rest, n_read) = (after, column + n_digits);
    }
    // Columns are as wide as their widest value.
    pieces.push(Piece::Same(rest.split_whitespace().collect::<Vec<_>>().join(" ")));
}

#[test]
fn only_named_values_that_depend_on_time_may_differ() {
    let alike = |written: &str, printed: &str| is_alike("curl", written, printed, 2);
    for (written, printed) in [
        ("x-ratelimit-reset: 1794756097", "x-ratelimit-reset: 1894756097"),
        ("retry-after: 360", "retry-after: 358"),
        (
            r#"{"remaining":9,"resetAfterSeconds":360,"limit":10}"#,
            r#"{"remaining":9,"resetAfterSeconds":359,"limit":10}"#,
        ),
        ("date: Sun, 15 Nov 2026 15:15:36 GMT", "date: Mon, 16 Nov 2026 15:15:36 GMT"),
        (
            "x-correlation-id: 7d1c0f5a8be24c6f9a3e1b2d4c5f6a70",
            "x-correlation-id: 8d1c0f5a8be24c6f9a3e1b2d4c5f6a70",
        ),
        ("lastRefill\n1794741384408", "lastRefill\n1794741999999"),
        (
            "KEY  LEFT  FULL IN  MODE\na       0  600 s    enforce",
            "KEY  LEFT  FULL IN  MODE\na       0  599 s    enforce",
        ),
        ("tokens\n3.000", "tokens\n3.001"),
    ] {
        assert!(alike(written, printed), "{written} | {printed}");
    }
    for (written, printed) in [
        ("x-ratelimit-reset: 1794756097", "x-ratelimit-reset: 1794756097000"),
        ("retry-after: 360", "retry-after: 350"),
        ("x-ratelimit-limit: 100", "x-ratelimit-limit: 90"),
        (r#"{"remaining":99}"#, r#"{"remaining":98}"#),
        ("content-length: 164", "content-length: 165"),
        ("x-correlation-id: c-17", "x-correlation-id: c-18"),
        ("lastRefill\n1794741384408", "lastRefill\n1794741384408000"),
        ("KEY  LEFT  FULL IN\na      40  600 s", "KEY  LEFT  FULL IN\na      41  600 s"),
        ("tokens\n3.000", "tokens\n4.000"),
        ("last update: 5", "last update: 6"),
        ("ratewright_reloads_total 1794756097", "ratewright_reloads_total 1794756098"),
    ] {
        assert!(!alike(written, printed), "{written} | {printed}");
    }
    let chunk = |text: &str| without_times_of_charges(text);
    assert_eq!(
        chunk("1794741384430190 3 2 1794741384418009: 0 12181*2"),
        chunk("1794741384430191 3 2 1794741384418010: 0 9*2")
    );
    assert_ne!(
        chunk("1794741384430190 3 2 1794741384418009: 0 12181*2"),
        chunk("1794741384430190 4 2 1794741384418009: 0 12181*3")
    );
}

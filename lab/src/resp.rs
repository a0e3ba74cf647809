//! One command to Redis, and its reply as `redis-cli` prints it: starting a process takes longer than most tests need Redis for.

use std::io::{BufRead, BufReader, Error, ErrorKind, Result, Write};
use std::net::TcpStream;

use crate::Stream;

/// Sends a command to the server on this port of loopback.
///
/// # Errors
/// If the server is not there, goes away, or does not reply within a minute.
pub(crate) fn command(port: u16, words: &[&str]) -> Result<String> {
    let mut stream = Stream::from(TcpStream::connect(("127.0.0.1", port))?);
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut lines = Vec::new();
    read_reply(&mut BufReader::new(stream), &mut lines)?;
    Ok(lines.join("\n"))
}

/// Reads a reply: each element of an array is a line of its own, and what is null is an empty one.
fn read_reply(from: &mut impl BufRead, lines: &mut Vec<String>) -> Result<()> {
    let mut head = String::new();
    from.read_line(&mut head)?;
    let invalid = || Error::new(ErrorKind::InvalidData, format!("a reply begins with {head:?}"));
    let kind = head.get(..1).ok_or_else(invalid)?;
    let rest = head.get(1..).ok_or_else(invalid)?.trim_end();
    match kind {
        "+" | "-" | ":" => lines.push(rest.to_owned()),
        "$" | "*" if rest.starts_with('-') => lines.push(String::new()),
        "$" => {
            let mut text = vec![0; rest.parse::<usize>().map_err(|_| invalid())? + 2];
            from.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            lines.push(String::from_utf8_lossy(&text).into_owned());
        }
        "*" => {
            (0..rest.parse::<usize>().map_err(|_| invalid())?).try_for_each(|_| read_reply(from, lines))?
        }
        _ => return Err(invalid()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_printed_as_redis_cli_does() {
        for (reply, printed) in [
            ("+OK\r\n", "OK"),
            (":7\r\n", "7"),
            ("-ERR no\r\n", "ERR no"),
            ("$4\r\na\r\nb\r\n", "a\r\nb"),
            ("$-1\r\n", ""),
            ("*0\r\n", ""),
            ("*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+b\r\n", "a\n1\n\nb"),
        ] {
            let mut lines = Vec::new();
            read_reply(&mut reply.as_bytes(), &mut lines).unwrap();
            assert_eq!(lines.join("\n"), printed);
        }
        for cut in ["", "$4\r\na", "*2\r\n:1\r\n", "?\r\n"] {
            assert!(read_reply(&mut cut.as_bytes(), &mut Vec::new()).is_err(), "{cut}");
        }
    }
}

//! A real WebSocket client and a real server, in Python, with the gateway between them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;

use ratewright_lab::{accept, foreign, join, lines_of, receive, wait};

use super::python;
use crate::process::{Guarded, Ratewright};

/// Starts an echo server, prints its port, reads the gateway's address, and connects to it three times.
const PROGRAM: &str = r#"
import asyncio, sys
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import InvalidStatus

async def echo(socket):
    async for message in socket:
        await socket.send(message)

async def ask(gateway):
    async with connect(f"ws://{gateway}/chat", proxy=None, max_size=None) as socket:
        for message in ["hello", "", "é" * 100_000, bytes(range(256)) * 8_192]:
            await socket.send(message)
            assert await socket.recv() == message
        await (await socket.ping())
    return socket.close_code

async def main():
    async with serve(echo, "127.0.0.1", 0, max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        gateway = (await asyncio.to_thread(sys.stdin.readline)).strip()
        print(await asyncio.gather(ask(gateway), ask(gateway)))
        try:
            await ask(gateway)
        except InvalidStatus as error:
            print(error.response.status_code)

asyncio.run(main())
"#;

#[test]
fn websockets_pass_and_are_limited_at_the_handshake() {
    let mut python = foreign(python());
    python.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = Guarded(python.spawn().unwrap());
    let printed = lines_of(python.0.stdout.take().unwrap());
    let port = receive(&printed, "its port");
    let ratewright = Ratewright::start(&format!(
        "policies: [{{name: p, by: ip, quota: {{rate: 2/h}}}}]\n\
         routes: [{{id: chat, match: {{path: /**}}, upstream: 'http://127.0.0.1:{port}'}}]\n"
    ));
    writeln!(python.0.stdin.as_mut().unwrap(), "{}", ratewright.gateway).unwrap();
    assert_eq!(receive(&printed, "two codes"), "[1000, 1000]", "both are closed as they should");
    assert_eq!(receive(&printed, "a status"), "429", "the third is one too many");
    assert!(wait(&mut python.0).success());
}

#[test]
fn the_log_says_why_a_101_opened_no_tunnel() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    let ratewright = Ratewright::start(&format!(
        "routes: [{{id: chat, match: {{path: /**}}, upstream: 'http://127.0.0.1:{port}'}}]\n"
    ));
    let responding = std::thread::spawn(move || {
        let mut connection = accept(&upstream);
        let request = BufReader::new(connection.again()).lines().map(Result::unwrap);
        request.take_while(|line| !line.is_empty()).for_each(drop);
        connection
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
            .unwrap();
        std::io::copy(&mut connection, &mut std::io::sink()).unwrap(); // until the gateway closes it
    });
    let upgrade = [("Connection", "upgrade"), ("Upgrade", "websocket")];
    assert_eq!(ratewright.pass("/chat", &upgrade).status, 502);
    join(responding, "the gateway closes the connection");
    ratewright.wait_for_line(&[
        "WARN",
        "invalid 101 response from the upstream",
        "101 response upgrades to h2c, which the client did not ask for",
        &format!("127.0.0.1:{port}"),
    ]);
}

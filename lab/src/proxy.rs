//! A proxy that torments: it delays, swallows, breaks and trickles what passes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

/// What the proxy does with what passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Fault {
    /// It passes on.
    None,
    /// It passes on, each way so much later.
    Delay(Duration),
    /// It takes everything and passes nothing on, in either direction.
    BlackHole,
    /// It breaks connections, and takes no new ones.
    Reset,
    /// It passes requests on, and swallows answers: a connection that is open one way only.
    HalfOpen,
    /// It passes answers on one byte at a time.
    Trickle,
}

/// A proxy on loopback.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    kind: AtomicU8,
    delay: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// A proxy to that port on loopback.
    pub fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("an address");
        let shared =
            Arc::new(Shared { kind: AtomicU8::new(0), delay: AtomicU64::new(0), open: Mutex::default() });
        let of_thread = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if of_thread.fault() == Fault::Reset {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                of_thread.join(client, server);
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From now on does this.
    pub fn set(&self, fault: Fault) {
        let (kind, delay) = match fault {
            Fault::None => (0, Duration::ZERO),
            Fault::Delay(delay) => (1, delay),
            Fault::BlackHole => (2, Duration::ZERO),
            Fault::Reset => (3, Duration::ZERO),
            Fault::HalfOpen => (4, Duration::ZERO),
            Fault::Trickle => (5, Duration::ZERO),
        };
        self.shared.delay.store(u64::try_from(delay.as_micros()).unwrap_or(0), Ordering::SeqCst);
        self.shared.kind.store(kind, Ordering::SeqCst);
        if fault == Fault::Reset {
            for stream in self.shared.open.lock().expect("no thread panics").drain(..) {
                // Without lingering, closing sends a reset. The shutdown wakes who reads from it.
                let _gone_already = set_socket_linger(&stream, Some(Duration::ZERO));
                let _gone_already = stream.shutdown(Shutdown::Read);
            }
        }
    }
}

impl Shared {
    fn fault(&self) -> Fault {
        match self.kind.load(Ordering::SeqCst) {
            0 => Fault::None,
            1 => Fault::Delay(Duration::from_micros(self.delay.load(Ordering::SeqCst))),
            2 => Fault::BlackHole,
            3 => Fault::Reset,
            4 => Fault::HalfOpen,
            _ => Fault::Trickle,
        }
    }

    /// Passes on between two connections, in threads of their own.
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let streams = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
        let Some((client_again, server_again)) = streams() else { return };
        let _gone_already = (client.set_nodelay(true), server.set_nodelay(true));
        if let Ok(mut open) = self.open.lock() {
            open.extend(streams().into_iter().flat_map(|(client, server)| [client, server]));
        }
        let (requests, answers) = (self.clone(), self.clone());
        std::thread::spawn(move || requests.pass(client, server, false));
        std::thread::spawn(move || answers.pass(server_again, client_again, true));
    }

    /// Passes on in one direction, until a side closes.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, is_answer: bool) {
        let mut buffer = vec![0; 65_536];
        // What is delayed is sent in its order, each part when its time has come.
        let (queue, due) = std::sync::mpsc::channel::<(Instant, Vec<u8>)>();
        let Ok(mut delayed) = to.try_clone() else { return };
        std::thread::spawn(move || {
            for (at, bytes) in due {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                if delayed.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        while let Ok(n) = from.read(&mut buffer) {
            if n == 0 {
                break;
            }
            let bytes = &buffer[..n];
            let sent = match self.fault() {
                Fault::Delay(delay) => queue.send((Instant::now() + delay, bytes.to_vec())).is_ok(),
                Fault::BlackHole => true,
                Fault::HalfOpen if is_answer => true,
                Fault::Reset => false,
                Fault::Trickle if is_answer => bytes.iter().all(|byte| {
                    std::thread::sleep(Duration::from_millis(1));
                    to.write_all(&[*byte]).is_ok()
                }),
                Fault::None | Fault::HalfOpen | Fault::Trickle => {
                    queue.send((Instant::now(), bytes.to_vec())).is_ok()
                }
            };
            if !sent {
                break;
            }
        }
        let _gone_already = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

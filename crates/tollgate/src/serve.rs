//! Opens the doors, and waits for the word to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_core::{Clock, Limiter, Policies, Timestamp};
use tollgate_server::admin::{self, Admin, Info, Labels, Metrics, Readiness};
use tollgate_server::watch::{Warnings, Watch};
use tollgate_server::{Listening, rest, serve};
use tollgate_store::WallClock;

use crate::buckets::Buckets;
use crate::config::{Config, StoreConfig};
use crate::figures;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the doors share.
struct Running {
    limiter: Arc<Limiter<Arc<Buckets>, Arc<Watch<WallClock>>>>,
    store: Arc<Buckets>,
    watch: Arc<Watch<WallClock>>,
    started_at: Timestamp,
    is_stopping: AtomicBool,
}

/// Runs until SIGTERM or ctrl-c.
///
/// # Errors
/// If an address cannot be listened on, or the operating system refuses threads or signals.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        let stop = stopped()?;
        let (api_listener, api) = listen("api", config.listen.api.address).await?;
        let (admin_listener, admin) =
            listen("admin", config.listen.admin.map_or(config.listen.api.address, |door| door.address))
                .await?;
        let running = Arc::new(Running::new(config.policies, config.store));
        // Nobody may be reading; that is no reason not to serve.
        let _ = writeln!(
            std::io::stdout(),
            "tollgate {VERSION}: decisions on http://{api}, buckets in {place}, admin on http://{admin}; \
             try: curl 'http://{api}/api/v1/rate-limit/check?key=user:123'",
            place = running.store.place(),
        );
        // The admin door closes last, so that one can watch the others close.
        let (closed, closing) = tokio::sync::oneshot::channel::<()>();
        let closing = async { closing.await.unwrap_or_default() };
        let door = Arc::new(running.admin(config.labels));
        let door = admin::open(door.clone()).merge(admin::guarded(door));
        let admin = tokio::spawn(serve(admin_listener, door, Listening::default(), None, closing));
        let door = rest::router(running.limiter.clone(), WallClock, running.watch.checks().clone());
        let stop = async {
            stop.await;
            running.is_stopping.store(true, Ordering::Relaxed);
        };
        serve(api_listener, door, Listening::default(), None, stop).await;
        drop(closed);
        admin.await.context("the admin door failed")
    })
}

impl Running {
    fn new(policies: Policies, store: StoreConfig) -> Self {
        let store = Arc::new(Buckets::open(store));
        let watch = Arc::new(Watch::new(Warnings::default(), WallClock));
        Self {
            limiter: Arc::new(Limiter::observed(policies, store.clone(), watch.clone())),
            store,
            watch,
            started_at: WallClock.now(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// What the admin door needs.
    fn admin(self: &Arc<Self>, labels: Labels) -> Admin<WallClock> {
        let [store, policies, info, readiness] = std::array::from_fn(|_| self.clone());
        Admin {
            watch: self.watch.clone(),
            metrics: Metrics::new(labels, self.watch.clone())
                .with(move || figures::of_store(&store.store))
                .with(move || figures::of_policies(&policies.limiter.policies())),
            info: Box::new(move || Info {
                version: VERSION,
                generation: info.limiter.policies().generation(),
                uptime: WallClock.now().since(info.started_at),
            }),
            readiness: Box::new(move || readiness.readiness()),
        }
    }

    fn readiness(&self) -> Readiness {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Readiness::NotReady { reason: "it is stopping" };
        }
        Readiness::Ready
    }
}

async fn listen(door: &str, address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address}; is another program using it? Set listen.{door} to another address"
        )
    })?;
    let address = listener.local_addr().context("cannot tell the address")?;
    Ok((listener, address))
}

/// Ready when SIGTERM or ctrl-c comes. From this call on, not from the first wait.
fn stopped() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for ctrl-c")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

//! Opens the doors, and waits for the word to stop.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tollgate_core::Limiter;
use tollgate_server::{Listening, rest, serve};
use tollgate_store::WallClock;

use crate::buckets::Buckets;
use crate::config::Config;
use crate::log::Log;

/// Runs until SIGTERM or ctrl-c.
///
/// # Errors
/// If an address cannot be listened on, or the operating system refuses threads or signals.
pub(crate) fn run(config: Config) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(async {
        let stop = stopped()?;
        let listener = TcpListener::bind(config.listen_api).await.with_context(|| {
            let address = config.listen_api;
            format!(
                "cannot listen on {address}; is another program using it? Set listen.api to another address"
            )
        })?;
        let address = listener.local_addr().context("cannot tell the address")?;
        let store = Buckets::open(config.store);
        let place = store.place();
        let limiter = Limiter::observed(config.policies, store, Log);
        let door = rest::router(Arc::new(limiter), WallClock, Arc::default());
        // Nobody may be reading; that is no reason not to serve.
        let _ = writeln!(
            std::io::stdout(),
            "tollgate {}: decisions on http://{address}, buckets in {place}; try: \
             curl 'http://{address}/api/v1/rate-limit/check?key=user:123'",
            env!("CARGO_PKG_VERSION")
        );
        serve(listener, door, Listening::default(), None, stop).await;
        Ok(())
    })
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

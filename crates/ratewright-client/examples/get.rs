//! Gets a URL, waiting as long as the server asks, and tells what happens.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use ratewright_client::{Client, EventKind, Retry, RetrySummary};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: get URL")?;
    let retry = Retry::builder().on_event(|event| {
        if let EventKind::Waiting { wait, cause, .. } = event.kind {
            println!("attempt {} failed, waiting {wait:?} ({cause:?})", event.attempts);
        }
    });
    let client =
        Client::with(reqwest::Client::builder(), reqwest::redirect::Policy::default(), retry.build())?;
    let response = client.get(url).send().await?;
    let attempts = response.extensions().get::<RetrySummary>().map_or(1, |summary| summary.attempts);
    println!("{} after {attempts} attempts: {}", response.status(), response.text().await?);
    Ok(())
}

//! The peer `limitador`, with its Redis storage: the same keys and limit as ours.

use std::collections::HashMap;
use std::sync::Arc;

use limitador::limit::Limit;
use limitador::storage::redis::AsyncRedisStorage;
use limitador::{AsyncRateLimiter, storage::AsyncStorage};

/// Its limiter on that Redis, with one limit for each client.
pub(crate) async fn limiter(url: &str) -> Arc<AsyncRateLimiter> {
    let storage = AsyncRedisStorage::new(url).await.expect("Redis answers");
    let limiter = AsyncRateLimiter::new_with_storage(AsyncStorage::with_counter_storage(Box::new(storage)));
    let client = vec!["client".try_into().expect("an expression")];
    limiter.add_limit(Limit::new("bench", 1_000, 1, Vec::new(), client));
    Arc::new(limiter)
}

/// One decision.
pub(crate) async fn decide(limiter: &AsyncRateLimiter, client: String) {
    let context = HashMap::from([("client".to_owned(), client)]);
    let namespace = "bench".into();
    limiter.check_rate_limited_and_update(&namespace, &context.into(), 1).await.expect("Redis answers");
}

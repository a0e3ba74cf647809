//! Decisions by limitador's Redis storage: `limitador-peer URL TASKS DECISIONS KEYS` prints the microseconds of wall
//! time for each. The keys and the limit are those of `ratewright-bench redis`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use limitador::AsyncRateLimiter;
use limitador::limit::Limit;
use limitador::storage::redis::AsyncRedisStorage;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, numbers @ ..] = arguments.as_slice() else { panic!("URL TASKS DECISIONS KEYS") };
    let numbers: Vec<usize> = numbers.iter().map(|text| text.parse().expect("a number")).collect();
    let &[n_tasks, n_decisions, n_keys] = numbers.as_slice() else { panic!("URL TASKS DECISIONS KEYS") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let micros = runtime.expect("a runtime").block_on(async {
        let storage = AsyncRedisStorage::new(url).await.expect("Redis answers");
        let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
        limiter.add_limit(Limit::new(
            "bench",
            1_000,
            1,
            vec![],
            vec!["client".try_into().expect("an expression")],
        ));
        let limiter = Arc::new(limiter);
        let start = Instant::now();
        let tasks: Vec<_> = (0..n_tasks)
            .map(|task| tokio::spawn(decide(limiter.clone(), task, n_decisions / n_tasks, n_keys)))
            .collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
        start.elapsed().as_nanos() as f64 / 1e3 / (n_decisions / n_tasks * n_tasks) as f64
    });
    println!("{micros}");
}

/// One task's decisions, one after the other, for clients in an order that nobody can guess.
async fn decide(limiter: Arc<AsyncRateLimiter>, task: usize, n: usize, n_keys: usize) {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(task as u64 + 1);
    for _ in 0..n {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let client = format!("10.0.{:08}", (x >> 32) as usize % n_keys);
        let context = HashMap::from([("client".to_owned(), client)]).into();
        limiter.check_rate_limited_and_update(&"bench".into(), &context, 1).await.expect("Redis answers");
    }
}

//! Reloads that replace routes and their policies under load.

use std::sync::atomic::{AtomicUsize, Ordering};

use ratewright_lab::{Load, Nginx, wait_until};

use super::FAILURES;
use crate::process::Ratewright;

/// An upstream whose responses have this body.
fn saying(text: &str) -> Nginx {
    Nginx::start(1, "", &format!("location / {{ return 200 '{text}'; }}\n"))
}

/// A policy file with a route to this upstream, under a policy of this name.
fn file(name: &str, server: &Nginx) -> String {
    let address = server.address();
    format!(
        "policies: [{{name: {name}, by: ip, quota: {{rate: 1000/h, burst: 1000000}}}}]\n\
         routes: [{{id: x, match: {{path: /**}}, upstream: 'http://{address}', policies: [{name}]}}]\n"
    )
}

/// Each file's upstream responds with the name of the file's policy, so a response shows both.
#[test]
fn no_request_is_routed_by_one_file_and_counted_by_another() {
    let servers = [saying("a"), saying("b")];
    let files = [file("a", &servers[0]), file("b", &servers[1])];
    let ratewright = Ratewright::start(&files[0]);
    let n_answered = AtomicUsize::new(0);
    let ask = |goes_on: &dyn Fn() -> bool| {
        while goes_on() {
            let answer = ratewright.pass("/", &[]);
            let counted = answer.headers.get("ratelimit-policy").and_then(|field| field.split('"').nth(1));
            assert_eq!((counted, answer.status), (Some(answer.body.as_str()), 200));
            n_answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let load = Load::default();
        let spawn = |goes_on| scope.spawn(move || ask(&goes_on));
        let threads: Vec<_> = (0..3).map(|_| spawn(load.goes_on())).collect();
        for n in 1..=40 {
            ratewright.rewrite(&files[n % 2]);
            ratewright.signal("HUP");
            let before = n_answered.load(Ordering::Relaxed);
            wait_until("it is in force, and requests are answered", || {
                ratewright.pass("/", &[]).body == ["a", "b"][n % 2]
                    && n_answered.load(Ordering::Relaxed) > before
                    || threads.iter().any(|thread| thread.is_finished())
            });
        }
        load.end();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    });
    assert_eq!(ratewright.metric(FAILURES), 0.0);
}

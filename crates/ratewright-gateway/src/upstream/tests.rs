//! Balancing and health, by example, by law, and with real threads.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Barrier;

const SECOND: u64 = 1_000_000;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const UNREACHABLE: Failure = Failure { kind: FailureKind::Unreachable, client: CLIENT };

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_000 * SECOND + seconds * SECOND)
}

fn upstream(n_servers: u16, balance: Balance) -> Arc<Upstream> {
    let servers = (0..n_servers).map(|n| UpstreamServer::parse(&format!("http://h:{}", 1_000 + n)).unwrap());
    Arc::new(Upstream::new(servers.collect(), balance, Protocol::Http1, Health::default()))
}

/// The index of the server that gets the next request.
fn next(upstream: &Arc<Upstream>, now: Timestamp) -> usize {
    upstream.pick(now, &Tried::default()).unwrap().number
}

/// Fails a server until it is ejected.
fn eject(upstream: &Arc<Upstream>, number: usize, now: Timestamp) {
    for _ in 0..upstream.health.failures_max.get() {
        let mut lease = upstream.lease(number, Admission::Healthy, now);
        lease.failed(UNREACHABLE, now);
    }
}

fn states(upstream: &Upstream) -> Vec<(bool, u32, u64)> {
    upstream.states().map(|state| (state.is_healthy, state.n_in_flight, state.n_ejections)).collect()
}

#[test]
fn servers_take_turns() {
    let upstream = upstream(3, Balance::RoundRobin);
    let turns: Vec<_> = (0..6).map(|_| next(&upstream, at(0))).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn the_least_loaded_server_is_next_and_idle_ones_take_turns() {
    let upstream = upstream(3, Balance::LeastConnections);
    let mut leases: Vec<_> = (0..3).map(|_| upstream.pick(at(0), &Tried::default()).unwrap()).collect();
    assert_eq!(states(&upstream), [(true, 1, 0); 3]);
    let freed = leases.remove(1);
    let number = freed.number;
    drop(freed);
    assert_eq!(next(&upstream, at(0)), number);
    leases.clear();
    let turns: std::collections::HashSet<_> = (0..3).map(|_| next(&upstream, at(0))).collect();
    assert_eq!(turns.len(), 3);
}

#[test]
fn a_request_is_sent_to_each_server_once() {
    let upstream = upstream(3, Balance::RoundRobin);
    eject(&upstream, 1, at(0));
    let mut tried = Tried::default();
    let mut order = Vec::new();
    while let Some(lease) = upstream.pick(at(0), &tried) {
        tried.add(&lease);
        order.push(lease.number);
    }
    assert_eq!(order.len(), 3);
    assert_eq!(order[2], 1, "the ejected one is the last resort");
    assert_eq!(tried.n_servers(), 3);
}

#[test]
fn nothing_is_allocated_for_a_request() {
    for balance in [Balance::RoundRobin, Balance::LeastConnections] {
        let upstream = upstream(8, balance);
        let made = allocation_counter::measure(|| {
            let mut lease = upstream.pick(at(0), &Tried::default()).unwrap();
            lease.succeeded(CLIENT, at(0));
        });
        assert_eq!(made.count_total, 0);
    }
}

#[test]
fn only_consecutive_failures_eject() {
    let upstream = upstream(1, Balance::RoundRobin);
    for outcome in "ffsffsffs".chars() {
        let mut lease = upstream.pick(at(0), &Tried::default()).unwrap();
        let _ = if outcome == 'f' {
            lease.failed(UNREACHABLE, at(0)).is_some()
        } else {
            lease.succeeded(CLIENT, at(0))
        };
    }
    assert_eq!(states(&upstream), [(true, 0, 0)]);
    eject(&upstream, 0, at(0));
    assert_eq!(states(&upstream), [(false, 0, 1)]);
}

#[test]
fn an_ejected_server_is_probed_by_one_request_and_recovers() {
    let upstream = upstream(2, Balance::RoundRobin);
    eject(&upstream, 0, at(0));
    assert!((0..5).all(|_| next(&upstream, at(9)) == 1));
    let mut probe = upstream.pick(at(10), &Tried::default()).unwrap();
    assert!(probe.is_probe() && probe.number == 0);
    assert!((0..5).all(|_| next(&upstream, at(100)) == 1), "one probes, the others avoid");
    probe.succeeded(CLIENT, at(0));
    assert_eq!(states(&upstream), [(true, 1, 1), (true, 0, 0)]);
    drop(probe);
    let turns: Vec<_> = (0..4).map(|_| next(&upstream, at(100))).collect();
    assert_eq!(turns.iter().filter(|number| **number == 0).count(), 2);
}

/// A failure of the n-th client.
fn failure(kind: FailureKind, n: u8) -> Failure {
    Failure { kind, client: Ipv4Addr::new(198, 51, 100, n).into() }
}

const CAUSED_BY_CLIENTS: [FailureKind; 2] = [FailureKind::NoResponse, FailureKind::Broken];

/// 24 requests that exceed the timeout at one instant ejected a server, although it responded to everybody else.
#[test]
fn requests_of_one_client_that_time_out_together_count_once() {
    for kind in CAUSED_BY_CLIENTS {
        let upstream = upstream(2, Balance::RoundRobin);
        for round in 0..2 {
            let mut slow: Vec<_> =
                (0..24).map(|_| upstream.lease(0, Admission::Healthy, at(round * 10))).collect();
            for lease in &mut slow {
                assert_eq!(lease.failed(failure(kind, 1), at(round * 10 + 2)), None, "{kind:?}");
            }
        }
        let mut next = upstream.lease(0, Admission::Healthy, at(20));
        assert!(
            next.failed(failure(kind, 1), at(22)).is_some(),
            "a third moment, and no response to anybody"
        );
    }
}

#[test]
fn a_missing_response_does_not_count_if_others_came_meanwhile() {
    let upstream = upstream(2, Balance::RoundRobin);
    for n in 0..20 {
        let mut slow: Vec<_> = (0..5).map(|_| upstream.lease(0, Admission::Healthy, at(n * 10))).collect();
        upstream.lease(0, Admission::Healthy, at(n * 10)).succeeded(CLIENT, at(n * 10 + 1));
        for (client, lease) in (1..).zip(&mut slow) {
            assert_eq!(lease.failed(failure(FailureKind::NoResponse, client), at(n * 10 + 2)), None);
        }
    }
    assert_eq!(states(&upstream), [(true, 0, 0), (true, 0, 0)]);
}

/// One client may send requests that break each connection, while the server responds to others.
#[test]
fn one_client_alone_ejects_no_server_that_works_for_others() {
    let upstream = upstream(2, Balance::RoundRobin);
    let fail = |n: u8, second: u64| {
        upstream.lease(0, Admission::Healthy, at(second)).failed(failure(FailureKind::Broken, n), at(second))
    };
    upstream.lease(0, Admission::Healthy, at(0)).succeeded(failure(FailureKind::Broken, 2).client, at(0));
    upstream.lease(0, Admission::Healthy, at(0)).succeeded(failure(FailureKind::Broken, 1).client, at(0));
    for second in 1..9 {
        assert_eq!(fail(1, second), None);
    }
    assert!(fail(3, 9).is_some(), "another client fails too");
}

#[test]
fn failures_of_several_clients_or_without_a_connection_eject_at_once() {
    for kinds in [[FailureKind::NoResponse; 3], [FailureKind::Broken; 3], [FailureKind::Unreachable; 3]] {
        let upstream = upstream(2, Balance::RoundRobin);
        let mut leases: Vec<_> = (0..3).map(|_| upstream.lease(0, Admission::Healthy, at(0))).collect();
        let mut outcomes = (1..).zip(leases.iter_mut().zip(kinds)).map(|(n, (lease, kind))| {
            let n = if kind == FailureKind::Unreachable { 1 } else { n };
            lease.failed(failure(kind, n), at(1)).is_some()
        });
        assert_eq!([(); 3].map(|()| outcomes.next().unwrap()), [false, false, true], "{kinds:?}");
    }
}

#[test]
fn clients_eject_at_most_a_share_of_the_servers() {
    for (n_servers, n_ejected) in [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)] {
        let upstream = upstream(n_servers, Balance::RoundRobin);
        let fail = |number: usize, kind: FailureKind| {
            for n in 0..3 {
                upstream.lease(number, Admission::Healthy, at(2 * n)).failed(failure(kind, 1), at(2 * n + 1));
            }
        };
        (0..usize::from(n_servers)).for_each(|number| fail(number, FailureKind::NoResponse));
        let n = states(&upstream).iter().filter(|state| !state.0).count();
        assert_eq!(n, n_ejected, "of {n_servers}");
        (0..usize::from(n_servers)).for_each(|number| fail(number, FailureKind::Unreachable));
        assert!(
            states(&upstream).iter().all(|state| !state.0),
            "without a connection, all {n_servers} are ejected"
        );
    }
}

/// A host that is gone, against a server whose queue of connections a client fills.
#[test]
fn connections_that_do_not_open_in_time_count_unless_the_server_responds_to_others() {
    let upstream = upstream(4, Balance::RoundRobin);
    let try_to_connect = |number: usize, n: u64, is_answered: bool| {
        let mut lease = upstream.lease(number, Admission::Healthy, at(2 * n));
        if is_answered {
            upstream.lease(number, Admission::Healthy, at(2 * n)).succeeded(CLIENT, at(2 * n + 1));
        }
        lease.failed(failure(FailureKind::NoConnection, 1), at(2 * n + 1))
    };
    assert!((0..9).all(|n| try_to_connect(0, n, true).is_none()), "it responds to others");
    for number in 1..4 {
        assert!((10..12).all(|n| try_to_connect(number, n, false).is_none()));
        assert!(try_to_connect(number, 12, false).is_some(), "no share limits how many hosts may be gone");
    }
    let mut probe = upstream.pick(at(40), &Tried::default()).unwrap();
    assert!(probe.is_probe());
    assert_eq!(
        probe.failed(failure(FailureKind::NoConnection, 1), at(40)),
        Some(Micros::from_secs(20)),
        "doubled"
    );
}

/// An attacker's slow request may be the probe.
#[test]
fn a_probe_that_a_client_can_make_fail_does_not_double_the_time() {
    for kind in CAUSED_BY_CLIENTS {
        let upstream = upstream(2, Balance::RoundRobin);
        eject(&upstream, 0, at(0));
        for n in 1..10 {
            let mut probe = upstream.pick(at(n * 10), &Tried::default()).unwrap();
            assert!(probe.is_probe(), "{n}");
            assert_eq!(probe.failed(failure(kind, 1), at(n * 10)), Some(Micros::from_secs(10)));
        }
    }
}

#[test]
fn each_probe_that_fails_doubles_the_time_up_to_five_minutes() {
    let upstream = upstream(2, Balance::RoundRobin);
    eject(&upstream, 0, at(0));
    let mut now = at(0);
    for seconds in [10, 20, 40, 80, 160, 300, 300] {
        let early = Timestamp::from_micros(now.as_micros() + seconds * SECOND - 1);
        assert_eq!(next(&upstream, early), 1, "{seconds}");
        now = now + Micros::from_secs(seconds);
        let mut probe = upstream.pick(now, &Tried::default()).unwrap();
        assert!(probe.is_probe(), "{seconds}");
        probe.failed(UNREACHABLE, now);
    }
    now = now + Micros::from_secs(300);
    upstream.pick(now, &Tried::default()).unwrap().succeeded(CLIENT, at(0));
    eject(&upstream, 0, now);
    assert!(
        upstream.pick(now + Micros::from_secs(10), &Tried::default()).unwrap().is_probe(),
        "a new row begins"
    );
}

#[test]
fn a_probe_without_an_outcome_lets_the_next_request_probe() {
    let upstream = upstream(2, Balance::RoundRobin);
    eject(&upstream, 0, at(0));
    for _ in 0..3 {
        let probe = upstream.pick(at(10), &Tried::default()).unwrap();
        assert!(probe.is_probe());
    }
    assert_eq!(states(&upstream), [(false, 0, 1), (true, 0, 0)]);
}

#[test]
fn if_all_are_ejected_the_first_is_used_and_may_recover() {
    let upstream = upstream(3, Balance::LeastConnections);
    eject(&upstream, 1, at(0));
    eject(&upstream, 2, at(1));
    eject(&upstream, 0, at(2));
    let mut lease = upstream.pick(at(3), &Tried::default()).unwrap();
    assert_eq!((lease.number, lease.is_probe()), (1, false));
    lease.succeeded(CLIENT, at(0));
    assert_eq!(next(&upstream, at(3)), 1);
    assert_eq!(states(&upstream)[1], (true, 1, 1));
}

#[test]
fn requests_older_than_an_ejection_change_nothing() {
    let upstream = upstream(2, Balance::RoundRobin);
    let mut before: Vec<_> = (0..4).map(|_| upstream.lease(0, Admission::Healthy, at(0))).collect();
    eject(&upstream, 0, at(0));
    before[0].succeeded(CLIENT, at(0));
    before[1].failed(UNREACHABLE, at(5));
    assert_eq!(states(&upstream)[0], (false, 4, 1));
    let mut probe = upstream.pick(at(10), &Tried::default()).unwrap();
    before[2].failed(UNREACHABLE, at(10));
    probe.succeeded(CLIENT, at(0));
    probe.failed(UNREACHABLE, at(10));
    assert_eq!(states(&upstream)[0], (true, 5, 1), "the first judgement counts");
}

#[test]
fn known_servers_keep_their_state_and_new_ones_start_healthy() {
    let old = upstream(2, Balance::RoundRobin);
    eject(&old, 0, at(0));
    let held = old.lease(1, Admission::Healthy, at(0));
    let servers =
        ["http://h:1001", "http://h:1000", "http://h:9"].map(|url| UpstreamServer::parse(url).unwrap());
    let health = Health { eject_for: Micros::from_secs(1), ..Health::default() };
    let new = Upstream::new(servers.into(), Balance::LeastConnections, Protocol::Http2, health);
    let new = new.inheriting(&old);
    assert_eq!(states(&new), [(true, 1, 0), (false, 0, 1), (true, 0, 0)]);
    assert_eq!(
        (new.balance(), new.protocol(), new.health()),
        (Balance::LeastConnections, Protocol::Http2, health)
    );
    drop(held);
    assert_eq!(states(&new)[0], (true, 0, 0));
}

/// Runs the same work in several threads at once.
fn in_threads(work: impl Fn() + Sync) {
    const N_THREADS: usize = 8;
    let barrier = Barrier::new(N_THREADS);
    std::thread::scope(|scope| {
        for _ in 0..N_THREADS {
            scope.spawn(|| {
                barrier.wait();
                work();
            });
        }
    });
}

#[test]
fn one_of_many_threads_probes() {
    for round in 0..200 {
        let upstream = upstream(2, Balance::RoundRobin);
        eject(&upstream, 0, at(round));
        let n_probes = AtomicUsize::new(0);
        let leases = std::sync::Mutex::new(Vec::new());
        in_threads(|| {
            let lease = upstream.pick(at(round + 10), &Tried::default()).unwrap();
            n_probes.fetch_add(usize::from(lease.is_probe()), Ordering::SeqCst);
            leases.lock().unwrap().push(lease);
        });
        assert_eq!(n_probes.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn many_threads_count_every_lease_once() {
    let upstream = upstream(3, Balance::LeastConnections);
    in_threads(|| {
        let mut held = Vec::new();
        for n in 0..3_000_u64 {
            let mut lease = upstream.pick(at(n / 100), &Tried::default()).unwrap();
            match n % 7 {
                0 | 1 => _ = lease.failed(UNREACHABLE, at(n / 100)),
                2 => {}
                _ => _ = lease.succeeded(CLIENT, at(0)),
            }
            held.push(lease);
            if held.len() > 5 {
                held.remove(0);
            }
        }
        assert!(upstream.states().map(|state| state.n_in_flight).sum::<u32>() >= 5);
    });
    assert!(upstream.states().all(|state| state.n_in_flight == 0));
    let later = at(100_000);
    for _ in 0..3 {
        upstream.pick(later, &Tried::default()).unwrap().succeeded(CLIENT, at(0));
    }
    assert!(upstream.states().all(|state| state.is_healthy), "no mark of a probe was left behind");
}

proptest! {
    /// All healthy servers get the same number of requests, plus or minus one, and the others none.
    #[test]
    fn round_robin_is_fair_among_healthy_servers(n in 1..9_u16, ejected: u8, n_requests in 1..60_usize) {
        let upstream = upstream(n, Balance::RoundRobin);
        let healthy: Vec<_> = (0..usize::from(n)).filter(|number| ejected & (1 << number) == 0).collect();
        (0..usize::from(n)).filter(|number| !healthy.contains(number)).for_each(|number| eject(&upstream, number, at(0)));
        let mut counts: HashMap<usize, usize> = healthy.iter().map(|number| (*number, 0)).collect();
        for _ in 0..n_requests {
            *counts.entry(next(&upstream, at(5))).or_default() += 1;
        }
        if !healthy.is_empty() {
            prop_assert_eq!(counts.len(), healthy.len());
            let (min, max) = (counts.values().min().unwrap(), counts.values().max().unwrap());
            prop_assert!(max - min <= 1, "{:?}", counts);
        }
    }

    /// Whatever happened before, the next request goes to a healthy server with the fewest requests in flight. An
    /// ejected server gets nothing before its time, and then one probe.
    #[test]
    fn the_next_server_is_healthy_and_least_loaded(n in 2..6_u16, steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>(), 0..4_u64), 1..60)) {
        let upstream = upstream(n, Balance::LeastConnections);
        let mut leases: Vec<Lease> = Vec::new();
        let mut now = at(0);
        for (step, which, seconds) in steps {
            now = now + Micros::from_secs(seconds);
            if step < 2 || leases.is_empty() {
                let before = states(&upstream);
                let least = before.iter().filter(|state| state.0).map(|state| state.1).min();
                let lease = upstream.pick(now, &Tried::default()).unwrap();
                let (is_healthy, n_in_flight, _) = before[lease.number];
                prop_assert_eq!(is_healthy, matches!(lease.admission, Admission::Healthy));
                if lease.is_probe() {
                    let same = |other: &&Lease| other.number == lease.number && other.admission == lease.admission;
                    let others = leases.iter().filter(same).filter(|other| !other.has_outcome);
                    prop_assert_eq!(others.count(), 0);
                } else if let Some(least) = least {
                    prop_assert!(is_healthy && n_in_flight == least);
                }
                leases.push(lease);
            } else {
                let chosen = which.index(leases.len());
                let mut lease = leases.swap_remove(chosen);
                let _ = if step == 2 { lease.failed(UNREACHABLE, now).is_some() } else { lease.succeeded(CLIENT, now) };
            }
        }
        let n_in_flight: u32 = upstream.states().map(|state| state.n_in_flight).sum();
        prop_assert_eq!(n_in_flight as usize, leases.len());
    }
}

#[test]
fn outcomes_report_ejection_and_recovery() {
    let upstream = upstream(1, Balance::RoundRobin);
    let judge = |now: u64| upstream.pick(at(now), &Tried::default()).unwrap();
    assert_eq!([judge(0).failed(UNREACHABLE, at(0)), judge(0).failed(UNREACHABLE, at(0))], [None, None]);
    assert_eq!(judge(0).failed(UNREACHABLE, at(0)), Some(Micros::from_secs(10)));
    assert!(judge(20).succeeded(CLIENT, at(0)), "the probe finds it back");
    assert!(!judge(20).succeeded(CLIENT, at(0)));
}

//! Several gateways on one Redis: limits after a crash of a gateway, and without Redis.

use ratewright_lab::{Redis, wait_until};

use super::{application, gateway};

fn config(redis: &Redis) -> String {
    format!(
        "store: {{redis: {{url: '{}', deadline: 10s}}}}\npolicies: [{{name: p, by: ip, quota: {{rate: 10/h}}}}]\n",
        redis.url()
    )
}

#[test]
fn c12_two_gateways_share_a_limit_and_one_that_dies_loses_nothing_of_it() {
    let (application, redis) = (application(), Redis::start());
    let [one, two] = std::array::from_fn(|_| gateway(&application, &config(&redis)));
    one.wait_for_redis();
    two.wait_for_redis();
    for n in 0..3 {
        assert_eq!([one.pass("/", &[]).status, two.pass("/", &[]).status], [200, 200], "{n}");
    }
    drop(one); // as a crash would end it
    let left: Vec<_> = (0..6).map(|_| two.pass("/", &[]).status).collect();
    assert_eq!(left, [200, 200, 200, 200, 429, 429]);
    let three = gateway(&application, &config(&redis));
    three.wait_for_redis();
    assert_eq!(three.pass("/", &[]).status, 429, "one that is new knows what was spent");
}

#[test]
fn a8_requests_pass_and_are_limited_while_redis_is_gone() {
    let (application, mut redis) = (application(), Redis::start());
    let ratewright = gateway(&application, &config(&redis));
    ratewright.wait_for_redis();
    assert_eq!(ratewright.pass("/", &[]).status, 200);
    redis.kill();
    let answers: Vec<_> = (0..12).map(|_| ratewright.pass("/", &[]).status).collect();
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 5, "half of ten: {answers:?}");
    ratewright.wait_for_line(&["WARN", "deciding without Redis"]);
    redis.run();
    let is_told = |line: &String| line.contains("INFO") && line.contains("deciding with Redis again");
    wait_until("it is back", || {
        ratewright.pass("/", &[]);
        ratewright.logged().iter().any(is_told)
    });
    let log = ratewright.log();
    let warnings = log.iter().filter(|line| line.contains("WARN") && line.contains("deciding without Redis"));
    assert_eq!(warnings.count(), 1, "{log:#?}");
}

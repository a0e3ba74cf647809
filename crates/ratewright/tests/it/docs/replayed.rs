//! Pages that are played from top to bottom: the first policy file of the page is served, then each command is run, in order.

use std::time::SystemTime;

use expect_test::expect_file;
use ratewright_lab::{Redis, wait_until};

use super::page_files::write_files;
use super::transcript::{Stage, replay};
use super::{Site, files, page};
use crate::packages::root;
use crate::process::{FREE_PORTS, Ratewright};

macro_rules! replayed {
    ($($name:ident: $page:literal,)*) => {
        /// The pages that this file plays.
        const HERE: &[&str] = &[$($page,)*];

        $(
            /// With UPDATE_EXPECT=1 what the commands print is written anew.
            #[test]
            fn $name() {
                play($page);
            }
        )*
    };
}

replayed! {
    start_gateway: "start/gateway.md",
    start_proxy: "start/proxy.md",
    start_service: "start/service.md",
    choosing_limits: "guides/choosing-limits.md",
    cost: "guides/cost.md",
    gateway: "guides/gateway.md",
    login: "guides/login.md",
    moving_from_bucket4j: "moving/bucket4j.md",
    moving_from_envoyproxy_ratelimit: "moving/envoyproxy-ratelimit.md",
    moving_from_governor: "moving/governor.md",
    moving_from_kong: "moving/kong.md",
    moving_from_nginx: "moving/nginx.md",
    moving_from_spring_cloud_gateway: "moving/spring-cloud-gateway.md",
    policy_file: "guides/policy-file.md",
    redis: "guides/redis.md",
    rest: "guides/rest.md",
    tiers: "guides/tiers.md",
}

/// Pages that have a test of their own, since they need more than a program, an application and a Redis.
pub(super) const ELSEWHERE: [(&str, &str); 8] = [
    ("guides/api.md", "the_page_on_the_api_shows_real_responses"),
    ("guides/clients.md", "e5_the_page_on_clients_shows_a_limited_response"),
    ("guides/kubernetes.md", "d7_e2_the_page_on_kubernetes_shows_what_the_commands_print"),
    ("guides/rate-limiting.md", "d4_d6_d7_the_page_on_rate_limiting_shows_what_a_developer_sees"),
    ("guides/rate-limiting.ru.md", "d8_both_pages_have_the_same_commands_outputs_and_figures"),
    ("operations/install.md", "the_page_on_installation_shows_what_an_operator_sees"),
    ("operations/live-page.md", "the_page_on_the_live_page_shows_its_data"),
    ("operations/production.md", "d7_e2_e4_e6_the_page_on_operations_shows_what_an_operator_sees"),
];

/// True if the commands of a page are run.
pub(super) fn is_replayed(page: &str) -> bool {
    let Some(page) = page.strip_prefix("docs/") else { return false };
    HERE.contains(&page) || ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == page)
}

/// Windows that begin at multiples of an hour must not end while a page is played.
#[expect(clippy::disallowed_methods, reason = "windows by the clock follow the real clock")]
fn wait_for_a_quiet_hour() {
    let second = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    wait_until("no hour ends soon", || second() % 3_600 < 3_570);
}

/// Plays a page, and compares it with what its commands print.
fn play(name: &str) {
    let page = page(name);
    let policies = files(&page).first().copied().unwrap_or_default();
    if policies.contains("fixed_window") || policies.contains("envoy:") {
        wait_for_a_quiet_hour();
    }
    let site_folder = tempfile::tempdir().unwrap();
    let site = Site::start(site_folder.path());
    let redis = policies.contains("redis://127.0.0.1:6379").then(Redis::start);
    let real = |file: &str| {
        let file = file.replace("127.0.0.1:3000", &site.1);
        assert!(!file.contains(":3000"), "somebody else's application would be asked: {file}");
        match &redis {
            // Without a deadline that a busy machine misses.
            Some(redis) => file.replace(
                "url: \"redis://127.0.0.1:6379\"",
                &format!("url: \"{}\", deadline: 10s", redis.url()),
            ),
            None => file,
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_files(&page, folder);
    // At the end, so that the lines of the file keep their numbers.
    std::fs::write(folder.join("ratewright.yaml"), format!("{}{FREE_PORTS}", real(policies))).unwrap();
    let ratewright = Ratewright::serve_in(folder, "ratewright.yaml");
    if redis.is_some() {
        ratewright.wait_for_redis();
    }
    let mut stage = Stage::new(&ratewright, folder);
    stage.addresses.push(("127.0.0.1:3000", site.1.clone()));
    if let Some(redis) = &redis {
        stage.addresses.push(("redis-cli ", format!("redis-cli -p {} ", redis.port())));
    }
    expect_file![root().join("docs").join(name)].assert_eq(&replay(&page, &stage));
}

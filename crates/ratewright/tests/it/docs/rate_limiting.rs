//! The page on rate limiting, in two languages. The English page is replayed; the Russian one must have the same commands, outputs and
//! numbers.
//!
//! - `worked_examples`: the tables of the algorithms are calculated.
//! - `redis_keys`: the keys and fields on the page are those in Redis.
//! - `references`: every file, symbol, setting and metric on the page exists.
//! - `commands`: commands that are not run name existing targets; link targets exist.
//! - `production`: the values of the examples, and nginx in front.

mod commands;
mod production;
mod redis_keys;
mod references;
mod worked_examples;

use std::os::unix::fs::symlink;

use expect_test::expect_file;
use ratewright_lab::{Redis, wait_until};

use super::markdown::{blocks, headings};
use super::transcript::{Stage, is_alike, replay};
use super::{Site, files, page, replaced};
use crate::packages::{root, text_of};
use crate::process::Ratewright;

const PAGES: [&str; 2] = ["guides/rate-limiting.md", "guides/rate-limiting.ru.md"];

/// Where a test acts for the reader.
const DIRECTION: &str = "<!-- test: ";

/// The policy file of the page, on this server, without a deadline that a busy machine misses.
fn config(page: &str, server: &Redis, upstream: &str) -> String {
    let store = format!("{{ url: '{}', deadline: 10s }}", server.url());
    let file = replaced(files(page)[0], "{ url: \"redis://127.0.0.1:6379\" }", &store);
    format!("{}log: {{ format: text }}\n", replaced(&file, "127.0.0.1:3000", upstream))
}

/// Windows that begin at multiples of 30 days must not end while a test runs.
fn wait_for_a_quiet_minute(server: &Redis) {
    const WINDOW: u64 = 30 * 86_400 * 1_000_000;
    wait_until("no window ends soon", || WINDOW - server.now() % WINDOW > 50_000_000);
}

/// D1, D3, D4, D6, D7, D8: each command on the page is run, in order. With UPDATE_EXPECT=1 what they print is written anew.
#[test]
fn d4_d6_d7_the_page_on_rate_limiting_shows_what_a_developer_sees() {
    let (page, mut server) = (page(PAGES[0]), Redis::start());
    wait_for_a_quiet_minute(&server);
    let site_folder = tempfile::tempdir().unwrap();
    let site = Site::start(site_folder.path());
    std::fs::write(site_folder.path().join("login"), "welcome\n").unwrap();
    let ratewright = Ratewright::start(&config(&page, &server, &site.1));
    ratewright.wait_for_redis();
    let file = ratewright.file();
    symlink(root().join("examples"), file.with_file_name("examples")).unwrap();
    let mut stage = Stage::new(&ratewright, file.parent().unwrap());
    stage.addresses.push(("redis-cli ", format!("redis-cli -p {} ", server.port())));
    let mut parts = page.split_inclusive(DIRECTION);
    let mut made = replay(parts.next().unwrap(), &stage).trim_end_matches('\n').to_owned();
    for part in parts {
        let (direction, rest) = part.split_once(" -->").unwrap();
        match direction {
            "redis starts" => server.run(),
            "payment is added above default" => add_payment(&ratewright, &page),
            other => panic!("{other}?"),
        }
        made += &format!("{direction} -->{}", replay(rest, &stage));
        made.truncate(made.trim_end_matches('\n').len());
    }
    expect_file!["../../../../../docs/guides/rate-limiting.md"].assert_eq(&format!("{made}\n"));
    check_denial(&ratewright, &page);
    check_log(&ratewright, &page, &server);
}

/// What the reader does by hand.
fn add_payment(ratewright: &Ratewright, page: &str) {
    let fragment = files(page).into_iter().find(|file| file.contains("name: payment")).unwrap();
    let (_, fragment) = fragment.split_once('\n').unwrap(); // without the line of the list itself
    let text = std::fs::read_to_string(ratewright.file()).unwrap();
    let (before, after) = text.split_once("  - name: default\n").unwrap();
    let new = ratewright.file().with_extension("new");
    std::fs::write(&new, format!("{before}{fragment}\n  - name: default\n{after}")).unwrap();
    std::fs::rename(new, ratewright.file()).unwrap();
}

/// What a line of the log says, without its time.
fn words(line: &str) -> &str {
    line.split_once("Z  ").unwrap().1
}

/// D4: a denial is found in the log by its id.
fn check_denial(ratewright: &Ratewright, page: &str) {
    let has_id = |line: &&str| line.contains("correlation_id=my-request");
    let written = page.lines().find(has_id).unwrap();
    let logged = ratewright.wait_for_line(&["correlation_id=my-request"]);
    assert!(is_alike("", words(written), words(&logged), 60), "{logged}");
}

/// D6: the log has the lines on the page, each once.
fn check_log(ratewright: &Ratewright, page: &str, server: &Redis) {
    wait_until("it logs that Redis decides again", || {
        ratewright.get("remaining?policy=login&key=203.0.113.10");
        ratewright.logged().iter().any(|line| line.contains("deciding with Redis again"))
    });
    let logged = ratewright.logged();
    let is_episode = |line: &&str| line.contains("deciding with");
    let written: Vec<_> = page.lines().filter(is_episode).filter(|line| line.starts_with("20")).collect();
    let logged: Vec<_> = logged.iter().map(String::as_str).filter(is_episode).collect();
    assert_eq!((written.len(), logged.len()), (2, 2), "{logged:#?}");
    let (warning, _) = words(written[0]).split_once(" cause=").unwrap();
    let (logged_warning, cause) = words(logged[0]).split_once(" cause=").unwrap();
    assert_eq!(warning, logged_warning);
    assert!(cause.contains(&format!("127.0.0.1:{}", server.port())), "{cause}");
    let [written, logged] = [written[1], logged[1]].map(|line| {
        let (before, after) = words(line).split_once(" after=").unwrap();
        (before, after.split_once(' ').unwrap().1)
    });
    assert_eq!(written, logged, "what it says, and the number of decisions");
}

/// Figures in the text: as the pages write them, and where they come from.
const FIGURES: [(&str, &str, &str, &str); 9] = [
    ("up to 32 decisions", "до 32 проверок", "store/src/redis/link.rs", "BATCH_MAX: usize = 32;"),
    ("10,000 units", "10\u{a0}000 единиц", "core/src/quota.rs", "LOG_UNITS_MAX: u32 = 10_000;"),
    (
        "for up to 30 seconds",
        "до 30 секунд",
        "tower/src/request_reader.rs",
        "PATIENCE: Duration = Duration::from_secs(30);",
    ),
    ("up to 64 charges", "чем из 64 списаний", "store/src/redis/apply.lua", "local CHUNK, PAGE = 64, 16"),
    ("above 64 bytes", "длиннее 64 байт", "store/src/redis/name.rs", "VALUE_MAX: usize = 64;"),
    ("(5 ms)", "(5 мс)", "store/src/redis.rs", "deadline: Duration::from_millis(5),"),
    ("0.5 by default", "по умолчанию 0,5", "store/src/failover.rs", "let half = Share { part: 1, of: TWO };"),
    (
        "up to 0.6 s",
        "до 0,6 с",
        "store/src/redis/link.rs",
        "PAUSE_MAX: Duration = Duration::from_millis(400);",
    ),
    (
        "a second or more after",
        "чем через секунду после",
        "store/src/failover.rs",
        "OUTAGE_ENDS_AFTER: Micros = Micros::from_secs(1);",
    ),
];

/// D8: what the text says in figures is what the code says.
#[test]
fn d8_figures_in_the_text_are_those_of_the_code() {
    let texts = PAGES.map(|name| page(name).replace('\n', " "));
    for (english, russian, file, code) in FIGURES {
        assert!(texts[0].contains(english) && texts[1].contains(russian), "{english}, {russian}");
        assert!(
            text_of(&format!("crates/ratewright-{file}")).contains(code),
            "{english}: {file} has not {code}"
        );
    }
}

/// D8: the Russian page has the headings, commands, outputs, files and figures of the English one.
#[test]
fn d8_both_pages_have_the_same_commands_outputs_and_figures() {
    let [english, russian] = PAGES.map(page);
    let levels = |page: &str| headings(page).iter().map(|(level, _)| *level).collect::<Vec<_>>();
    assert_eq!(levels(&english), levels(&russian), "headings");
    let (english_blocks, russian_blocks) = (blocks(&english), blocks(&russian));
    assert_eq!(english_blocks.len(), russian_blocks.len(), "blocks");
    for (one, other) in english_blocks.iter().zip(&russian_blocks) {
        assert_eq!(one.language, other.language, "{}", other.text);
        match one.language {
            // Drawings have words in the language of the page; the log has not.
            "text" if !one.text.starts_with("20") => {
                assert_eq!(one.text.lines().count(), other.text.lines().count(), "{}", other.text)
            }
            _ => assert_eq!(without_comments(one.text), without_comments(other.text)),
        }
    }
    let directions = |page: &str| {
        page.lines().filter(|line| line.starts_with(DIRECTION)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(directions(&english), directions(&russian));
}

fn without_comments(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split("  #").next().unwrap().trim_end()).collect()
}

/// D1: separate commands let two instances spend the last token; the script does not.
#[test]
fn d1_of_two_instances_one_gets_the_last_token() {
    let server = Redis::start();
    server.cli(&["SET", "tokens", "1"]);
    let [by_a, by_b] = [(); 2].map(|()| server.cli(&["GET", "tokens"]));
    for _ in 0..2 {
        server.cli(&["SET", "tokens", "0"]);
    }
    assert_eq!((by_a.as_str(), by_b.as_str()), ("1", "1"), "both allow, as in the first drawing");

    let policies = "policies: [{name: login, by: ip, quota: {rate: 1/h}}]";
    let store = format!("store: {{redis: {{url: '{}', deadline: 10s}}}}\n{policies}", server.url());
    let instances = [(); 2].map(|()| Ratewright::start(&store));
    instances.iter().for_each(Ratewright::wait_for_redis);
    for round in 0..20 {
        let barrier = std::sync::Barrier::new(2);
        let ask = |instance: &Ratewright| {
            barrier.wait();
            let answer = instance.get(&format!("check?policy=login&key=192.0.2.{round}"));
            (answer.status, answer.headers.get("retry-after").is_some_and(|wait| wait == "3600"))
        };
        let ask = &ask;
        let mut answers = std::thread::scope(|scope| {
            instances
                .each_ref()
                .map(|instance| scope.spawn(move || ask(instance)))
                .map(|asked| asked.join().unwrap())
        });
        answers.sort_unstable();
        assert_eq!(answers.map(|(status, _)| status), [200, 429], "round {round}");
    }
}

/// The answer about a command, on the page: it stays true if only time has passed.
#[test]
fn d8_a_wrong_figure_is_noticed() {
    let printed = r#"{"key":"203.0.113.9","remaining":4,"resetAfterSeconds":3600,"basis":"shared"}"#;
    assert!(is_alike("curl", printed, &printed.replace("3600", "3599"), 1));
    for wrong in
        [printed.replace(":4,", ":3,"), printed.replace("3600", "1800"), printed.replace("shared", "local")]
    {
        assert!(!is_alike("curl", printed, &wrong, 1), "{wrong}");
    }
}

//! Passwords in Spring files, and characters that a terminal obeys.

use super::*;

#[test]
fn passwords_become_variables() {
    for redis in [
        "{host: h, username: u, password: s3cret-in-a-file}",
        "{url: 'redis://u:s3cret-in-a-file@h:6379/1'}",
        "{url: 'redis://s3cret-in-a-file@h'}",
        "{url: 'redis://u:s3cret-in-a-file@${REDIS_HOST}:6379'}",
        "{url: 'redis://u:a/s3cret-in-a-file@h'}",
        "{url: 'redis://${LOGIN:s3cret-in-a-file}@h'}",
        "{url: 'redis://h?password=s3cret-in-a-file'}",
        "{host: h, password: '${PASSWORD:s3cret-in-a-file}'}",
        "{host: 'u:s3cret-in-a-file@h'}",
        "{password: s3cret-in-a-file, sentinel: {master: m, nodes: 'a:26379,b:26379', password: s3cret-in-a-file}}",
        "{password: s3cret-in-a-file, cluster.nodes: [a:1, b:2]}",
        "{cluster.nodes: ['u:s3cret-in-a-file@a:1', b:2]}",
    ] {
        let (text, remarks) = both(&with_redis(redis));
        assert!(!text.contains(SECRET) && !remarks.contains(SECRET), "{redis}: {text}{remarks}");
        assert!(remarks.contains("set the variable REDIS_PASSWORD"), "{redis}: {remarks}");
        assert!(text.contains("${REDIS_PASSWORD}") || redis.contains("?password"), "{text}");
    }
}

fn with_redis(redis: &str) -> String {
    format!("spring.data.redis: {redis}\nrate-limit.default-limit: {{capacity: 1, window: 1m}}")
}

#[test]
fn sentinels_have_their_own_variable() {
    let (text, remarks) = both(&with_redis("{sentinel: {master: m, nodes: 'u:s3cret-in-a-file@h:1, g:1'}}"));
    assert!(text.contains("redis://u:${REDIS_SENTINEL_PASSWORD}@h:1"), "{text}");
    assert!(!text.contains(SECRET) && !remarks.contains(SECRET), "{text}{remarks}");
}

#[test]
fn a_variable_keeps_its_name_without_a_default_that_has_a_password() {
    for (redis, expected) in [
        ("{url: '${REDIS_URL:redis://:s3cret-in-a-file@h}'}", "url: \"${REDIS_URL}\""),
        ("{url: 'redis://${ADDRESS:u:s3cret-in-a-file@h}'}", "url: \"redis://${ADDRESS}\""),
        ("{url: '${REDIS_URL:redis://h}'}", "url: \"${REDIS_URL:-redis://h}\""),
        ("{url: 'redis://:${PASSWORD}@h'}", "url: \"redis://:${PASSWORD}@h\""),
    ] {
        let (text, remarks) = both(&with_redis(redis));
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains(SECRET) && !remarks.contains(SECRET), "{text}{remarks}");
    }
}

#[test]
fn a_profile_does_not_reach_the_terminal_unescaped() {
    let file = SourceFile { path: "a.yml".into(), text: "a: 1".to_owned(), is_profile: false };
    let errors = convert(&[file], Some("x\u{1b}[2J\ny")).err().unwrap();
    let text = errors.iter().map(|error| format!("{error:#}")).collect::<String>();
    assert!(!text.contains('\u{1b}') && !text.contains('\n'), "{text:?}");
}

//! Every name on the page exists: files, symbols, tests, settings, metrics, commands.
//!
//! Every text in backticks must be one of these, or stand in one of the page's blocks, which are run or read elsewhere.

use std::collections::BTreeSet;

use ratewright_core::quota::Rate;
use ratewright_http::RateLimitHeaders;
use ratewright_lab::Redis;
use serde_json::Value;

use super::redis_keys::PREFIXES;
use super::{PAGES, config};
use crate::docs::markdown::{Block, blocks, paragraphs, quoted, tables};
use crate::docs::{Site, page};
use crate::packages::{files_in, root, text_of};
use crate::process::{Ratewright, run};

/// What belongs to others, and is neither in our sources nor in a block of the page.
const OTHERS: [&str; 10] = [
    "OPTIONS",
    "PATH",
    "$proxy_add_x_forwarded_for",
    "maxmemory-policy noeviction",
    "UNITS since TIME",
    "*COST",
    ". - _ : / @",
    "last_refill",
    "*",
    "**",
];

/// What references are resolved with.
struct Book {
    page: String,
    blocks: String,
    schema: Value,
    schema_text: String,
    metrics: String,
    server: Redis,
}

impl Book {
    fn of(name: &str) -> Self {
        let page = page(name);
        let (server, folder) = (Redis::start(), tempfile::tempdir().unwrap());
        let site = Site::start(folder.path());
        let ratewright = Ratewright::start(&config(&page, &server, &site.1));
        ratewright.wait_for_redis();
        ratewright.pass("/", &[]);
        let metrics = ratewright.admin("/metrics").body;
        let schema_text = String::from_utf8(run(&["schema"]).stdout).unwrap();
        let schema = serde_json::from_str(&schema_text).unwrap();
        let blocks = blocks(&page).iter().map(|block| block.text).collect();
        Self { page, blocks, schema, schema_text, metrics, server }
    }

    /// Why a text in backticks does not exist; `None` if it does.
    fn objection(&self, text: &str, paragraph: &str) -> Option<&'static str> {
        let first = text.split(' ').next().unwrap();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if ["ratewright", "redis-cli", "cargo", "make", "docker", "curl", "sha1sum"].contains(&first)
            && text.contains(' ')
        {
            return (!self.is_command(text)).then_some("no such command");
        }
        if is_path(text) {
            return (!root().join(text).exists()).then_some("no such file");
        }
        if PREFIXES.iter().chain(&["spent of "]).any(|prefix| text.starts_with(prefix)) {
            return None; // see `redis_keys`
        }
        if ["ratewright_", "rate_limiter_", "gateway_"].iter().any(|prefix| text.starts_with(prefix)) {
            return (!self.has_metric(text)).then_some("no such metric");
        }
        if text.contains("::") || (text.matches('_').count() > 3 && text.chars().all(is_word)) {
            return (!is_defined(text, paragraph)).then_some("not defined in the file beside it");
        }
        if text.ends_with(".yaml") {
            return (!self.blocks.contains(text)).then_some("no such policy file");
        }
        if text.starts_with("--") {
            let help = String::from_utf8(run(&["help", "serve"]).stdout).unwrap();
            return (!help.contains(first) && !self.blocks.contains(first)).then_some("no such option");
        }
        if text.contains('.')
            && text.split_once(": ").map_or(text, |(name, _)| name).chars().all(|c| is_word(c) || c == '.')
        {
            return (!self.is_setting(text)).then_some("no such setting");
        }
        let is_known = OTHERS.contains(&text)
            || self.blocks.contains(text)
            || self.is_setting(text)
            || self.is_value(text)
            || is_defined(text, paragraph)
            || self.is_redis_command(first)
            || is_header(text)
            || quoted(paragraph).iter().any(|other| is_part(text, other));
        (!is_known).then_some("nobody knows this")
    }

    /// True for a value of a setting, a label of a metric, a rate, a time, or a whole quota.
    fn is_value(&self, text: &str) -> bool {
        let is_listed = self.schema_text.contains(&format!("\"{text}\""))
            || (text.ends_with("://") && self.schema_text.contains(text));
        let is_label = [format!("\"{text}\""), format!("{{{text}="), format!(",{text}=")];
        is_listed
            || is_label.iter().any(|label| self.metrics.contains(label))
            || text.parse::<Rate>().is_ok()
            || self.is_setting(&format!("retry_after: {text}"))
            || (text.starts_with('{')
                && ratewright::parse_policy_file(&format!("policies: [{{name: a, quota: {text}}}]")).is_ok())
    }

    /// True for a command that the page runs, or whose name is known.
    fn is_command(&self, text: &str) -> bool {
        let mut words = text.split(' ').skip(1);
        match text.split(' ').next().unwrap() {
            _ if self.blocks.contains(text) => true,
            "ratewright" => run(&["help", words.next().unwrap()]).status.success(),
            "redis-cli" => self.is_redis_command(words.next().unwrap()),
            "sha1sum" => root().join(words.next().unwrap()).exists(),
            _ => false,
        }
    }

    fn is_redis_command(&self, word: &str) -> bool {
        let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase());
        is_word && !self.server.cli(&["COMMAND", "INFO", word]).is_empty()
    }

    fn has_metric(&self, name: &str) -> bool {
        let is_type = |line: &str| {
            let mut words = line.strip_prefix("# TYPE ").unwrap_or_default().split(' ');
            let (family, kind) = (words.next().unwrap(), words.next());
            family == name || (kind == Some("counter") && name.strip_suffix("_total") == Some(family))
        };
        self.metrics.lines().any(is_type)
    }

    /// `store.redis.deadline`, `burst`, or with a value: `mode: shadow`.
    fn is_setting(&self, text: &str) -> bool {
        let (path, value) = text.split_once(": ").map_or((text, None), |(path, value)| (path, Some(value)));
        let mut names = path.split('.');
        let mut found = Vec::new();
        collect(&self.schema, names.next().unwrap(), &self.schema, true, &mut found);
        for name in names {
            let outer = std::mem::take(&mut found);
            outer.iter().for_each(|schema| collect(schema, name, &self.schema, false, &mut found));
        }
        let Some(value) = value else { return !found.is_empty() };
        let value: Value = serde_saphyr::from_str(value).unwrap_or_default();
        found.iter().any(|schema| {
            let schema = serde_json::json!({"$defs": self.schema["$defs"], "allOf": [schema]});
            jsonschema::is_valid(&schema, &value)
        })
    }
}

/// The settings of a name in a part of the schema; `deep`, also those further inside.
fn collect<'a>(part: &'a Value, name: &str, whole: &'a Value, deep: bool, found: &mut Vec<&'a Value>) {
    if let Some(reference) = part["$ref"].as_str() {
        if !deep {
            let target = whole.pointer(reference.trim_start_matches('#')).unwrap();
            collect(target, name, whole, deep, found);
        }
        return;
    }
    found.extend(part["properties"].get(name));
    let inside = ["anyOf", "oneOf", "allOf"].iter().filter_map(|word| part[*word].as_array()).flatten();
    inside.chain(part.get("items")).for_each(|inside| collect(inside, name, whole, deep, found));
    if deep {
        let inner = ["properties", "$defs"].iter().filter_map(|word| part[*word].as_object());
        inner.flat_map(serde_json::Map::values).for_each(|inner| collect(inner, name, whole, deep, found));
    }
}

/// True for a part of a key, which `redis_keys` checks, or of a command.
fn is_part(text: &str, other: &str) -> bool {
    let has_more =
        text.len() < other.len() && (other.starts_with("ratelimit:") || other.starts_with("ratewright "));
    has_more
        && other.split([' ', '/', '+', '~']).any(|word| {
            word == text || word.ends_with(&format!(":{text}")) || word.starts_with(&format!("{text}:"))
        })
}

fn is_path(text: &str) -> bool {
    let roots = ["crates/", "docs/", "examples/", "lab/", "deploy/", "fuzz/"];
    roots.iter().any(|root| text.starts_with(root)) && !text.contains(' ')
}

/// True for a header that we write, or that names a client.
fn is_header(text: &str) -> bool {
    let name = text.split(": ").next().unwrap().to_lowercase();
    let of_clients = ["x-forwarded-for", "x-real-ip"];
    of_clients.contains(&name.as_str())
        || RateLimitHeaders::exposed_names().any(|known| known.eq_ignore_ascii_case(&name))
}

/// True if one of the files that a paragraph names defines a symbol.
fn is_defined(symbol: &str, paragraph: &str) -> bool {
    let names: Vec<&str> = symbol.split("::").collect();
    let words = ["fn", "struct", "enum", "trait", "mod", "type", "const"];
    let defines = |text: &str, name: &str| {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let is_item = |word: &&str| text.split(&format!("{word} {name}")).skip(1).any(ends);
        words.iter().any(is_item) || text.contains(&format!("\n    {name}: "))
    };
    quoted(paragraph).iter().filter(|path| is_path(path) && root().join(path).is_file()).any(|path| {
        let text = text_of(path);
        defines(&text, names[names.len() - 1]) && names.iter().all(|name| text.contains(name))
    })
}

/// D5, D8: all that stands in backticks, on both pages.
#[test]
fn d5_d8_every_name_on_the_page_exists() {
    let objections: BTreeSet<String> = PAGES
        .iter()
        .flat_map(|name| {
            let book = Book::of(name);
            let paragraphs = paragraphs(&book.page).into_iter();
            let texts = paragraphs
                .flat_map(|paragraph| quoted(paragraph).into_iter().map(move |text| (text, paragraph)));
            let objections: Vec<_> = texts
                .filter_map(|(text, paragraph)| {
                    Some(format!("{name}: {text}: {}", book.objection(&text, paragraph)?))
                })
                .collect();
            objections
        })
        .collect();
    assert!(objections.is_empty(), "{objections:#?}");
}

/// D5: each component has a file and a test.
#[test]
fn d5_each_component_has_a_file_and_a_test() {
    for name in PAGES {
        let page = page(name);
        let tables = tables(&page);
        let components =
            tables.iter().find(|table| table.rows.iter().any(|row| row[1].contains("limiter.rs"))).unwrap();
        assert!(components.rows.len() > 12, "{name}: {components:?}");
        for row in &components.rows {
            let [_, files, _, test] = &row[..] else { panic!("{name}: {row:?}") };
            assert!(quoted(files).iter().all(|file| root().join(file).is_file()), "{name}: {files}");
            let [function, file] = &quoted(test)[..] else { panic!("{name}: {test}") };
            assert!(file.contains("/tests/") && is_defined(function, test), "{name}: {test}");
        }
        for block in blocks(&page).iter().filter(|block| block.language == "text") {
            check_files_in_drawing(block, name);
        }
    }
}

fn check_files_in_drawing(block: &Block<'_>, page: &str) {
    let files = files_in("crates");
    let words = block.text.split(|c: char| c.is_whitespace() || c == ',' || c == ';');
    for word in words.filter(|word| word.ends_with(".rs") || word.ends_with(".lua")) {
        assert!(files.iter().any(|file| file.ends_with(word)), "{page}: {word} in a drawing");
    }
}

/// The schema knows where a setting is, and what it may say.
#[test]
fn a_setting_is_found_by_its_path_and_value() {
    let book = Book {
        page: String::new(),
        blocks: String::new(),
        schema: serde_json::from_slice(&run(&["schema"]).stdout).unwrap(),
        schema_text: String::new(),
        metrics: String::new(),
        server: Redis::start(),
    };
    for right in
        ["store.redis.deadline", "burst", "mode: shadow", "store.redis.min_ttl: 120s", "clients.user.jwt"]
    {
        assert!(book.is_setting(right), "{right}");
    }
    for wrong in ["store.redis.deadlines", "bursts", "mode: shadows", "store.min_ttl", "clients.jwt"] {
        assert!(!book.is_setting(wrong), "{wrong}");
    }
}

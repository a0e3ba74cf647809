//! `spring.data.redis` as `store.redis`. A password in the file becomes a variable.

use super::placeholders::SpringText;
use super::properties::SpringProperty;
use super::reader::{A_NAME, A_NUMBER, SpringReader};
use super::url_credentials::{self, SplitAddress};
use crate::convert::policy_file_draft::{DraftLine, quoted, quoted_list};

/// The variables that replace passwords.
const PASSWORD: &str = "REDIS_PASSWORD";
const SENTINEL_PASSWORD: &str = "REDIS_SENTINEL_PASSWORD";

/// Converts the connection to Redis. `is_needed`: the limits are in Redis even if the file does not say where it is.
pub(super) fn convert(reader: &mut SpringReader<'_>, is_needed: bool) {
    let section = reader.root.first_of(&["spring.data.redis", "spring.redis"]);
    let mut lines = Vec::new();
    match section {
        Some(section) => connection(reader, section, &mut lines),
        None if is_needed => lines.push(setting("redis.url", &quoted("redis://localhost:6379"))),
        None => {}
    }
    if is_needed && !reader.draft.section("store").sets("on_failure") {
        let advice = "Spring Cloud Gateway lets every request pass while Redis is gone; on_failure: open does the same.";
        lines.push(DraftLine::Comment(advice.to_owned()));
        reader.draft.section("store").set("on_failure", "local");
    }
    // Settings of one section stand together: the connection goes before a prefix.
    let store = reader.draft.section("store");
    let (comments, settings): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| matches!(line, DraftLine::Comment(_)));
    let others = std::mem::take(&mut store.lines);
    store.lines = comments.into_iter().chain(settings).chain(others).collect();
}

fn setting(name: &str, value: &str) -> DraftLine {
    DraftLine::Setting(name.to_owned(), value.to_owned())
}

fn connection(reader: &mut SpringReader<'_>, section: &SpringProperty, lines: &mut Vec<DraftLine>) {
    let ssl = section
        .get("ssl")
        .map(|ssl| ssl.get("enabled").unwrap_or(ssl))
        .filter(|ssl| ssl.entries().is_empty());
    let is_tls = ssl.and_then(|ssl| reader.is_true(ssl)).unwrap_or(false);
    let scheme = if is_tls { "rediss" } else { "redis" };
    let login = login(reader, section, PASSWORD);
    let database = section.get("database").and_then(|property| reader.number(property));
    let database = database.filter(|number| number.text != "0").map(|number| format!("/{}", number.text));
    let database = database.unwrap_or_default();
    if let Some(url) = section.get("url") {
        if let Some(text) = reader.text(url, "redis://stand-in.invalid") {
            let url = without_password(reader, url, &text, None, PASSWORD);
            lines.push(setting("redis.url", &quoted(&url)));
        }
    } else if let Some(nodes) = section.get("cluster.nodes") {
        let texts = reader.texts(nodes, A_NAME);
        let urls = texts.iter().map(|node| without_password(reader, nodes, node, Some(&login), PASSWORD));
        let urls: Vec<_> = urls.map(|node| format!("{scheme}://{node}")).collect();
        if urls.len() == 1 {
            lines.push(setting("redis.cluster", "true"));
        }
        lines.push(setting("redis.url", &quoted_list(&urls)));
    } else if let Some(sentinel) = section.get("sentinel") {
        sentinels(reader, sentinel, lines);
        if !login.is_empty() || !database.is_empty() {
            lines.push(setting("redis.url", &quoted(&format!("{scheme}://{login}localhost{database}"))));
        }
    } else {
        let is_address =
            |host: &SpringText| !host.written.contains(['$', '[', '@']) && host.written.contains(':');
        let property = section.get("host");
        let host =
            property.and_then(|host| reader.text(host, A_NAME)).filter(|host| !host.written.is_empty());
        let host = match (property, host) {
            (Some(_), Some(host)) if is_address(&host) => format!("{login}[{}]", host.written),
            (Some(property), Some(host)) => without_password(reader, property, &host, Some(&login), PASSWORD),
            _ => format!("{login}localhost"),
        };
        let port = section.get("port").and_then(|port| reader.text(port, A_NUMBER)).map(|port| port.written);
        let port = port.unwrap_or_else(|| "6379".to_owned());
        lines.push(setting("redis.url", &quoted(&format!("{scheme}://{host}:{port}{database}"))));
    }
    leftovers(reader, section, lines);
}

/// Reports what has no equivalent.
fn leftovers(reader: &mut SpringReader<'_>, section: &SpringProperty, lines: &mut Vec<DraftLine>) {
    for (name, advice) in [
        ("timeout", "Ratewright waits store.redis.deadline, 5ms, for Redis; raise it if Redis is far away"),
        ("connect-timeout", "Ratewright connects in the background"),
        ("lettuce", "Ratewright needs no pool of connections"),
        ("jedis", "Ratewright needs no pool of connections"),
        ("ssl", "see store.redis.tls"),
    ] {
        let left = section.get(name).filter(|left| !left.unread().is_empty());
        lines.extend(left.map(|left| DraftLine::Comment(reader.not_converted(left, advice))));
    }
    let others = reader.leftovers(section, "store.redis has no such setting");
    lines.extend(others.into_iter().map(DraftLine::Comment));
}

fn sentinels(reader: &mut SpringReader<'_>, sentinel: &SpringProperty, lines: &mut Vec<DraftLine>) {
    let login = login(reader, sentinel, SENTINEL_PASSWORD);
    let master = sentinel.get("master").and_then(|master| reader.text(master, A_NAME));
    let mut urls = Vec::new();
    if let Some(nodes) = sentinel.get("nodes") {
        for node in reader.texts(nodes, A_NAME) {
            let node = without_password(reader, nodes, &node, Some(&login), SENTINEL_PASSWORD);
            urls.push(quoted(&format!("redis://{node}")));
        }
    }
    let master = quoted(&master.map(|master| master.written).unwrap_or_default());
    lines.push(setting("redis.sentinel", &format!("{{ master: {master}, nodes: [{}] }}", urls.join(", "))));
}

/// The user and the password before a host: `user:${REDIS_PASSWORD}@`.
fn login(reader: &mut SpringReader<'_>, section: &SpringProperty, variable: &'static str) -> String {
    let user = section.get("username").and_then(|user| reader.text(user, A_NAME));
    let user = user.map(|user| if user.has_variables() { user.written } else { encoded(&user.written) });
    let password = section.get("password").and_then(|property| {
        let text = reader.text(property, A_NAME)?;
        (!text.written.is_empty()).then_some(text)
    });
    let password = password.map(|text| {
        // A variable without a default, or with an empty one, shows nothing.
        let is_variable = text.has_variables() && text.value.as_deref().unwrap_or_default().is_empty();
        if is_variable { text.written } else { hidden(reader, section, variable) }
    });
    match (user.unwrap_or_default(), password) {
        (user, None) if user.is_empty() => String::new(),
        (user, password) => format!("{user}:{}@", password.unwrap_or_default()),
    }
}

/// The variable that replaces a password.
fn hidden(reader: &mut SpringReader<'_>, section: &SpringProperty, variable: &'static str) -> String {
    reader.draft.variables.insert(variable.to_owned(), A_NAME);
    let property = section.get("password").unwrap_or(section);
    reader
        .warn(property, &format!("a password does not belong in a file; set the variable {variable} to it"));
    format!("${{{variable}}}")
}

/// A url, or a host, without a literal password; that becomes a variable. `own` is the login that other properties name.
fn without_password(
    reader: &mut SpringReader<'_>,
    property: &SpringProperty,
    text: &SpringText,
    own: Option<&str>,
    variable: &'static str,
) -> String {
    const DROPPED: &str = "the default of this variable has a password and was left out; set the variable";
    let mut written = text.written.clone();
    if url_credentials::default_has_login(text) {
        reader.warn(property, DROPPED);
        let (without, names) = url_credentials::without_defaults(&written);
        let stand_in =
            if without.starts_with("${") && own.is_none() { "redis://stand-in.invalid" } else { A_NAME };
        names.into_iter().for_each(|name| _ = reader.draft.variables.insert(name, stand_in));
        written = without;
    }
    let SplitAddress { scheme, login, host } = url_credentials::split(&written);
    // A password in a query is dropped with the query.
    let host = match host.split_once('?').filter(|(_, query)| query.to_ascii_lowercase().contains("password"))
    {
        Some((host, _)) => {
            hidden(reader, property, variable);
            host
        }
        None => host,
    };
    let scheme = if own.is_some() { "" } else { scheme };
    let Some(login) = login else {
        return format!("{scheme}{}{host}", own.unwrap_or_default());
    };
    if let Some(own) = own.filter(|own| !own.is_empty()) {
        reader.warn(property, "the login before the host was left out; username and password count");
        return format!("{own}{host}");
    }
    let (user, password) = url_credentials::user_and_password(login);
    let password = if password.is_empty() || url_credentials::is_secret_variable(password) {
        password.to_owned()
    } else {
        hidden(reader, property, variable)
    };
    format!("{scheme}{user}:{password}@{host}")
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

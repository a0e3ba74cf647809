//! Values for production, and a proxy in front.

use ratewright_lab::{Nginx, Redis};
use serde_json::Value;

use super::{PAGES, config};
use crate::docs::markdown::{blocks, tables};
use crate::docs::{Site, page, replaced};
use crate::packages::text_of;
use crate::process::{Ratewright, http};

/// The policies of a file, by their names.
fn policy<'a>(file: &'a Value, name: &str) -> Option<&'a Value> {
    file["policies"].as_array().unwrap().iter().find(|policy| policy["name"] == name)
}

/// D7: the table of values is what the files say.
#[test]
fn d7_the_values_on_the_page_are_those_of_the_examples() {
    let read = |name: &str| serde_saphyr::from_str::<Value>(&text_of(&format!("examples/{name}"))).unwrap();
    let (common, production) = (read("endpoints.yaml"), read("endpoints.production.yaml"));
    for name in PAGES {
        let page = page(name);
        let tables = tables(&page);
        let values = tables.iter().find(|table| table.rows.iter().any(|row| row[0] == "`recovery`")).unwrap();
        assert_eq!(values.rows.len(), 4, "{name}: {values:?}");
        for row in &values.rows {
            let limit = row[0].trim_matches('`');
            let in_common = policy(&common, limit).unwrap();
            let in_production = policy(&production, limit).unwrap_or(in_common);
            let expected = [cells(in_common), cells(in_production)].concat();
            let row: Vec<_> = row[1..].iter().map(|cell| cell.trim_matches('`')).collect();
            assert_eq!(row, expected, "{name}: {limit}");
        }
    }
}

/// Rate, burst, window and minimum wait of a policy.
fn cells(policy: &Value) -> Vec<String> {
    let quotas = policy["quota"].as_array().cloned().unwrap_or_else(|| vec![policy["quota"].clone()]);
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "–".to_owned(),
    };
    let window = quotas.get(1).and_then(|quota| quota.get("rate"));
    [quotas[0].get("rate"), quotas[0].get("burst"), window, policy.get("retry_after")].map(text).to_vec()
}

/// D7: with these lines in nginx a client cannot choose its address, and is counted by the one that it has.
#[test]
fn d7_nginx_tells_the_address_of_its_client() {
    let page = page(PAGES[0]);
    let (server, folder) = (Redis::start(), tempfile::tempdir().unwrap());
    let site = Site::start(folder.path());
    // nginx is trusted on its own address; its client comes from another one of this machine.
    let file = replaced(&config(&page, &server, &site.1), "[127.0.0.1]", "[127.0.0.2]");
    // The bucket is full again in a tenth of a second.
    let file = replaced(&file, "deadline: 10s", "deadline: 10s, min_ttl: 1h");
    let ratewright = Ratewright::start(&file);
    ratewright.wait_for_redis();
    let block = blocks(&page).into_iter().find(|block| block.language == "nginx").unwrap();
    let lines = replaced(block.text, "127.0.0.1:8000", &ratewright.gateway);
    let nginx = Nginx::start(1, "", &format!("proxy_bind 127.0.0.2;\n{lines}"));
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.99\r\nConnection: close\r\n\r\n";
    assert_eq!(http(&nginx.address(), request).headers["x-ratelimit-remaining"], "19");
    assert_eq!(server.cli(&["KEYS", "*"]), "ratelimit:default:127.0.0.1");
}

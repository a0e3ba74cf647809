//! Files that the policy file names (keys, and rules for Envoy) are watched like the policy file itself.

use std::path::Path;

use ratewright_lab::{Client, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::FAILURES;
use crate::process::{Ratewright, on_free_ports};

/// A program that knows users by a key in this file, and whether it knows the one that a token names.
fn knows_by(key: &Path) -> (Ratewright, impl Fn(&str) -> bool + use<>) {
    let jwt = format!("clients: {{user: {{jwt: {{public_key: {}}}}}}}\n", key.display());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ratewright.yaml");
    let policies = "policies: [{name: api, by: user, quota: {rate: 1/h}, overrides: [{name: known, match: {user: '*'}, quota: {rate: 5/h}}]}]";
    std::fs::write(&file, on_free_ports(&format!("{jwt}{policies}"))).unwrap();
    let ratewright = Ratewright::serve(&[Path::new("-c"), &file]);
    let address = ratewright.address.clone();
    let knows = move |token: &str| {
        let _folder = &folder;
        let attributes = json!({"headers": {"Authorization": format!("Bearer {token}")}});
        let body = json!({"attributes": attributes, "look": true}).to_string();
        let (status, answer) = Client::connect(&address).post("/api/v1/decide", &body).unwrap();
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        answer["limits"][0]["override"] == "known"
    };
    (ratewright, knows)
}

/// The policy file is unchanged; a key file that it names is replaced, invalid, missing, and back again.
#[test]
fn a_replaced_key_is_used_and_an_invalid_one_is_ignored() {
    let elsewhere = TempDir::new().unwrap();
    let key = elsewhere.path().join("key.pem");
    let write = |pem: &str| {
        std::fs::write(key.with_extension("new"), pem).unwrap();
        std::fs::rename(key.with_extension("new"), &key).unwrap();
    };
    let [first, second, third] = [(); 3].map(|()| rcgen::KeyPair::generate().unwrap());
    let tokens = [&first, &second, &third].map(|key| token(key, "anna"));
    write(&first.public_key_pem());
    let (ratewright, knows) = knows_by(&key);
    let known = || tokens.each_ref().map(|token| knows(token));
    assert_eq!(known(), [true, false, false]);

    write(&second.public_key_pem());
    wait_until("the second key counts", || known() == [false, true, false]);
    assert_eq!(ratewright.metric(FAILURES), 0.0);

    write("no key at all");
    wait_until("it is refused", || ratewright.metric(FAILURES) == 1.0);
    ratewright.wait_for_line(&["ERROR", "clients.user.jwt.public_key: this is not a public key in PEM"]);
    std::fs::remove_file(&key).unwrap();
    wait_until("it is refused too", || ratewright.metric(FAILURES) == 2.0);
    let gone = format!("clients.user.jwt.public_key: cannot read {}", key.display());
    ratewright.wait_for_line(&["ERROR", &gone]);
    assert_eq!(known(), [false, true, false], "the last good one stays");

    write(&third.public_key_pem());
    wait_until("the third key counts", || known() == [false, false, true]);
    wait_until("it is counted: the key is in force a moment earlier", || {
        ratewright.metric("ratewright_reloads_total") == 2.0
    });
    assert_eq!(ratewright.metric(FAILURES), 2.0);
}

/// A mounted Secret: the key is a link into `..data`, which is a link to a folder that is replaced as a whole.
#[test]
fn kubernetes_swaps_a_folder_of_keys() {
    let mount = TempDir::new().unwrap();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, mount.path().join(name)).unwrap();
    let version = |name: &str, key: &rcgen::KeyPair| {
        let folder = mount.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("key.pem"), key.public_key_pem()).unwrap();
    };
    let [first, second] = [(); 2].map(|()| rcgen::KeyPair::generate().unwrap());
    let tokens = [&first, &second].map(|key| token(key, "anna"));
    version("..2026_1", &first);
    link("..2026_1", "..data");
    link("..data/key.pem", "key.pem");
    let (ratewright, knows) = knows_by(&mount.path().join("key.pem"));
    assert!(knows(&tokens[0]));
    version("..2026_2", &second);
    link("..2026_2", "..data_tmp");
    std::fs::rename(mount.path().join("..data_tmp"), mount.path().join("..data")).unwrap();
    std::fs::remove_dir_all(mount.path().join("..2026_1")).unwrap();
    wait_until("the second key counts", || knows(&tokens[1]));
    assert!(!knows(&tokens[0]));
    assert_eq!(ratewright.metric(FAILURES), 0.0);
}

/// A key file that a new policy file names is watched too.
#[test]
fn files_named_by_a_new_policy_file_are_watched() {
    let elsewhere = TempDir::new().unwrap();
    let jwks = elsewhere.path().join("jwks.json");
    std::fs::write(&jwks, "{}").unwrap();
    let ratewright = Ratewright::start("");
    ratewright.rewrite(&format!("clients: {{user: {{jwt: {{jwks: {}}}}}}}\n", jwks.display()));
    ratewright.wait_for_line(&["ERROR", "clients.user.jwt.jwks: this is not a JSON Web Key Set"]);
    let key = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    std::fs::write(&jwks, json!({"keys": [key]}).to_string()).unwrap();
    wait_until("it is in force", || ratewright.metric("ratewright_reloads_total") == 1.0);
}

/// Rules for Envoy are watched in their folder, and counts are kept.
#[test]
fn changed_rules_for_envoy_are_loaded_and_keep_their_counts() {
    let folder = TempDir::new().unwrap();
    let rules = |domain: &str, n: u32| {
        let limit = format!("{{unit: year, requests_per_unit: {n}, algorithm: sliding_window_counter}}");
        let text = format!("domain: {domain}\ndescriptors: [{{key: client, rate_limit: {limit}}}]\n");
        std::fs::write(folder.path().join(domain), text).unwrap();
    };
    rules("shop", 10);
    let section = format!("envoy: {{files: {}}}\n", folder.path().display());
    let ratewright = Ratewright::start(&section);
    let ask = |policy: &str, look: bool| {
        let body = json!({"attributes": {"other": {"client": "red"}}, "policies": [policy], "look": look});
        let answer = ratewright.post("/api/v1/decide", &[], &body.to_string()).json();
        answer["limits"][0]["remaining"].as_u64() // none if there is no such policy
    };
    assert_eq!(ask("envoy.shop.client", false), Some(9));
    rules("shop", 20);
    wait_until("the change is in force", || ask("envoy.shop.client", true) == Some(19));
    rules("inn", 5);
    wait_until("the new file is in force", || ask("envoy.inn.client", true) == Some(5));
    std::fs::write(folder.path().join("inn"), "domain: inn\ndescriptors: [{key: ''}]\n").unwrap();
    ratewright.wait_for_line(&["ERROR", "inn:2:21: descriptor has empty key"]);
    assert_eq!(ask("envoy.inn.client", true), Some(5), "what was in force stays");
    std::fs::remove_file(folder.path().join("inn")).unwrap();
    wait_until("what was taken away is gone", || ask("envoy.inn.client", true).is_none());
    ratewright.rewrite("");
    ratewright.wait_for_line(&[
        "ERROR",
        "policy file rejected: section envoy is missing",
        "write envoy: {files: []}",
    ]);
    ratewright.reload("envoy: {files: []}\n");
    assert_eq!(ask("envoy.shop.client", true), None);
}

/// A token that names a user, signed with that key.
fn token(key: &rcgen::KeyPair, user: &str) -> String {
    let header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::ES256);
    let claims = json!({"sub": user, "exp": 4_102_444_800_u64});
    let key = jsonwebtoken::EncodingKey::from_ec_pem(key.serialize_pem().as_bytes()).unwrap();
    jsonwebtoken::encode(&header, &claims, &key).unwrap()
}

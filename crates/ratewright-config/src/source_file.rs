//! The text of a policy file, with the path that errors name.

use std::path::PathBuf;

use crate::error::{continues_section, has_secret_pattern};

/// The text of one policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// The path that errors name.
    pub path: PathBuf,
    /// The content.
    pub text: String,
    /// True if it overrides the files before it.
    pub is_profile: bool,
}

impl SourceFile {
    /// The text of some sections, without comments: these may contain anything. `None` if a line may hold a secret, or if sections
    /// cannot be told from each other because the file does not list them one below the other.
    pub fn sections(&self, names: &[&str]) -> Option<String> {
        let mut text = String::new();
        let mut is_meant = false;
        for line in self.text.lines() {
            if line.trim_start().starts_with('#') {
                continue;
            }
            if !line.trim().is_empty() && !continues_section(line) {
                let (name, _) = line.split_once(':')?;
                if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
                    return None;
                }
                is_meant = names.contains(&name);
            }
            if is_meant {
                let code = without_comment(line)?;
                if has_secret_pattern(code) {
                    return None;
                }
                text.push_str(code);
                text.push('\n');
            }
        }
        Some(text)
    }
}

/// A line without the comment at its end. `None` if it has quotes, which a `#` may be within.
fn without_comment(line: &str) -> Option<&str> {
    match line.find(" #").or_else(|| line.find("\t#")) {
        None => Some(line),
        Some(_) if line.contains(['"', '\'']) => None,
        Some(at) => line.get(..at).map(str::trim_end),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let file = SourceFile { path: "p.yaml".into(), text: text.to_owned(), is_profile: false };
        let sections = file.sections(&["policies", "exempt"]);
        expected.assert_eq(sections.as_deref().unwrap_or("none"));
    }

    #[test]
    fn sections_are_cut_out_without_comments() {
        check(
            "# the store\nstore: {url: redis://:secret@db}\n\n# limits\npolicies:\n- name: a # one\n\n# s3cret\n  by: ip\napi:\n  tokens: [s]\n# - old\nexempt: {}\n",
            expect![[r#"
                policies:
                - name: a

                  by: ip
                exempt: {}
            "#]],
        );
        check("", expect![""]);
        check("api: {}", expect![""]);
        check("policies: ['a#b', \"c\"]", expect![["policies: ['a#b', \"c\"]\n"]]);
    }

    #[test]
    fn a_text_with_secrets_or_without_clear_sections_is_not_cut() {
        for text in [
            "{policies: [], api: {tokens: [s]}}",
            "policies:\n- when: {'header:X-Api-Key': k1}\n",
            "policies: ['a'] # s3cret",
            "\"policies\": []",
            "--- \npolicies: []",
            "&a policies: []",
            "<<: *a",
        ] {
            check(text, expect!["none"]);
        }
        check(
            "policies:\n- by: 'header:X-Api-Key'\n",
            expect![[r#"
            policies:
            - by: 'header:X-Api-Key'
        "#]],
        );
    }
}

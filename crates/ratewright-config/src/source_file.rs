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
    /// The text of some sections, with the comments above and within them. `None` if a line may hold a secret, or if sections cannot
    /// be told from each other because the file does not list them one below the other.
    pub fn sections(&self, names: &[&str]) -> Option<String> {
        let mut text = String::new();
        // Comments and empty lines that may belong to the next section.
        let mut pending = String::new();
        let mut is_meant = false;
        for line in self.text.lines() {
            let is_comment = line.starts_with('#') || line.trim().is_empty();
            if is_comment {
                pending.push_str(line);
                pending.push('\n');
                continue;
            }
            if !continues_section(line) {
                let (name, _) = line.split_once(':')?;
                if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
                    return None;
                }
                is_meant = names.contains(&name);
            }
            if is_meant {
                if pending.lines().chain([line]).any(has_secret_pattern) {
                    return None;
                }
                text.push_str(&pending);
                text.push_str(line);
                text.push('\n');
            }
            pending.clear();
        }
        Some(text)
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
    fn sections_are_cut_out_with_their_comments() {
        check(
            "# the store\nstore: {url: redis://:secret@db}\n\n# limits\npolicies:\n- name: a # one\n\n# two\n  by: ip\napi:\n  tokens: [s]\nexempt: {}\n",
            expect![[r#"

                # limits
                policies:
                - name: a # one

                # two
                  by: ip
                exempt: {}
            "#]],
        );
        check("", expect![""]);
        check("api: {}", expect![""]);
    }

    #[test]
    fn a_text_with_secrets_or_without_clear_sections_is_not_cut() {
        for text in [
            "{policies: [], api: {tokens: [s]}}",
            "policies:\n- when: {'header:X-Api-Key': k1}\n",
            "policies:\n# - when: {'header:X-Api-Key': k1}\n- name: a\n",
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

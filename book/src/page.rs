//! Links in a Markdown page: where they lead, and the same page with other destinations.

use std::path::{Component, Path, PathBuf};

use mdbook_markdown::pulldown_cmark::{Event, Tag};
use mdbook_markdown::{MarkdownOptions, new_cmark_parser};

/// A page with each relative destination replaced by what `destination` returns for it.
pub(crate) fn with_links(
    text: &str,
    mut destination: impl FnMut(&str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let mut changes = Vec::new();
    for (event, range) in new_cmark_parser(text, &MarkdownOptions::default()).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event else { continue };
        if !is_relative(&dest_url) {
            continue;
        }
        let written = text.get(range.clone()).unwrap_or_default();
        let (before, _) = written
            .rsplit_once(&format!("]({dest_url}"))
            .ok_or_else(|| anyhow::anyhow!("write this link as [text](destination): {written}"))?;
        let start = range.start + before.len() + "](".len();
        changes.push((start, dest_url.len(), destination(&dest_url)?));
    }
    // An image in a link comes after the link, but stands before its destination.
    changes.sort();
    let (mut made, mut copied) = (String::new(), 0);
    for (start, length, destination) in changes {
        made += text.get(copied..start).unwrap_or_default();
        made += &destination;
        copied = start + length;
    }
    made += text.get(copied..).unwrap_or_default();
    Ok(made)
}

/// Whether a link leads to another file of the repository.
pub(crate) fn is_relative(destination: &str) -> bool {
    let has_scheme = destination.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    });
    !has_scheme && !destination.starts_with(['#', '/'])
}

/// A path without `.` and `..`. A `..` that leaves the repository stays.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut made = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if made.file_name().is_some() => {
                made.pop();
            }
            other @ (Component::ParentDir
            | Component::Normal(_)
            | Component::RootDir
            | Component::Prefix(_)) => {
                made.push(other);
            }
        }
    }
    made
}

/// The way from the folder of one file to another file.
pub(crate) fn relative(from: &Path, to: &Path) -> String {
    let mut from: Vec<_> = from.components().collect();
    let mut to: Vec<_> = to.components().collect();
    from.pop();
    let n_common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from.drain(n_common..).map(|_| "..".to_owned());
    let down = to.drain(n_common..).map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_replaced_where_they_are_destinations() {
        let text = "[a.md](a.md#x) `[b](b.md)` ![c](c.svg) [d](https://d.example) [e](#e)\n\n```md\n[f](f.md)\n```\n";
        let made = with_links(text, |destination| Ok(format!("new/{destination}"))).unwrap();
        assert_eq!(made, text.replace("](a.md", "](new/a.md").replace("(c.svg", "(new/c.svg"));
    }

    #[test]
    fn an_image_in_a_link_has_both_destinations_replaced() {
        let made =
            with_links("[![a](a.svg)](b.md) c", |destination| Ok(format!("new/{destination}"))).unwrap();
        assert_eq!(made, "[![a](new/a.svg)](new/b.md) c");
    }

    #[test]
    fn a_link_by_reference_is_an_error() {
        assert!(with_links("[a]\n\n[a]: b.md\n", |to| Ok(to.to_owned())).is_err());
    }

    #[test]
    fn a_path_is_found_from_another() {
        let way = |from: &str, to: &str| relative(Path::new(from), Path::new(to));
        assert_eq!(way("guides/a.md", "guides/b.md"), "b.md");
        assert_eq!(way("guides/a.md", "repository/x/y.rs"), "../repository/x/y.rs");
        assert_eq!(way("a.md", "guides/b.md"), "guides/b.md");
        assert_eq!(normal(Path::new("docs/guides/../../README.md")), Path::new("README.md"));
    }
}

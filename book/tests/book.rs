//! The book builds, and all its links and anchors lead somewhere.

use std::path::Path;

#[test]
fn the_book_builds_without_warnings_and_without_broken_links() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book");
    assert_eq!(ratewright_book::build(root, &book).unwrap(), Vec::<String>::new());
    let page = std::fs::read_to_string(book.join("index.html")).unwrap();
    assert!(
        page.contains("id=\"mdbook-searchbar\"") || page.contains("id=\"searchbar\""),
        "the book has a search bar"
    );
    let has_index = std::fs::read_dir(&book)
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_str().is_some_and(|name| name.starts_with("searchindex")));
    assert!(has_index, "the book has no index to search in");
}

#[test]
fn broken_links_and_anchors_are_reported() {
    let root = tempfile::tempdir().unwrap();
    let docs = root.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    let write = |name: &str, text: &str| std::fs::write(docs.join(name), text).unwrap();
    write("book.toml", "[book]\ntitle = \"A\"\n");
    write("SUMMARY.md", "# Summary\n\n- [A](a.md)\n- [B](b.md)\n- [C](../C.md)\n");
    write(
        "a.md",
        "# A\n\n[fine](b.md#here) [fine](../C.md) [gone](gone.svg) [moved](b.md#there) [unlisted](d.md)\n",
    );
    write("b.md", "# B\n\n## Here\n");
    write("d.md", "# D\n");
    std::fs::write(root.path().join("C.md"), "# C\n\n[fine](docs/a.md)\n").unwrap();
    let problems = ratewright_book::build(root.path(), &root.path().join("book")).unwrap().join("\n");
    for expected in [
        "gone.svg, which is not a file",
        "b.html has no heading #there",
        "d.md, which docs/SUMMARY.md does not",
    ] {
        assert!(problems.contains(expected), "{expected} is not in\n{problems}");
    }
    assert!(!problems.contains("#here") && !problems.contains("C.html"), "{problems}");
}

//! The book builds, and all its links and anchors lead somewhere.

use std::path::Path;

#[test]
fn the_book_builds_without_warnings_and_without_broken_links() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book");
    assert_eq!(ratewright_book::build(root, &book).unwrap(), Vec::<String>::new());
    let page = std::fs::read_to_string(book.join("index.html")).unwrap();
    assert!(page.contains("id=\"mdbook-searchbar\""), "the book has a search bar");
    let mut files = std::fs::read_dir(&book).unwrap().map(|entry| entry.unwrap().path());
    let index = files.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("searchindex"));
    let index = std::fs::read_to_string(index.expect("the book has an index to search in")).unwrap();
    for page in ["guides/tiers.html", "reference/log-lines.html", "repository/ARCHITECTURE.html"] {
        assert!(index.contains(page), "the search does not find {page}");
    }
}

/// The READMEs that are not pages of the book.
#[test]
fn the_links_of_the_readmes_lead_to_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|entry| entry.unwrap().path().join("README.md")).filter(|readme| readme.exists());
    let mut n_pages = 0;
    for page in crates.chain([root.join("README.md")]) {
        let dead = ratewright_book::dead_links(root, page.strip_prefix(root).unwrap()).unwrap();
        assert_eq!(dead, Vec::<String>::new());
        n_pages += 1;
    }
    assert!(n_pages > 10, "{n_pages} pages");
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

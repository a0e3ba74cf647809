//! Builds the book.
//!
//! `docs/SUMMARY.md` is its table of contents. It may also list pages outside of `docs/`, such as `../ARCHITECTURE.md`; mdBook cannot
//! build those where they are, so `stage` copies all pages and the files that they link to into one folder first. `links` then
//! checks the HTML that mdBook made. [`plots`] draws the figures of docs/concepts with the engine.

mod links;
mod page;
pub mod plots;
mod stage;
mod warnings;

use std::path::Path;

use anyhow::Context as _;
use mdbook_driver::MDBook;
use mdbook_driver::config::Config;

/// Builds the book of the repository at `root` into `folder`. Returns the problems: broken links, and warnings of mdBook.
pub fn build(root: &Path, folder: &Path) -> anyhow::Result<Vec<String>> {
    let source = folder.with_extension("source");
    for old in [folder, &source] {
        if old.exists() {
            std::fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    let mut problems = stage::copy_pages(root, &source)?;
    let mut config = Config::from_disk(root.join("docs/book.toml"))?;
    config.book.src = source.clone();
    config.build.build_dir = folder.to_owned();
    problems.extend(warnings::collect(|| MDBook::load_with_config(&source, config)?.build())?);
    problems.extend(links::broken(folder)?);
    Ok(problems)
}

/// The relative links of a page outside of the book that lead to no file.
pub fn dead_links(root: &Path, page: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join(page.parent().unwrap_or(Path::new("")));
    let mut dead = Vec::new();
    page::with_links(&std::fs::read_to_string(root.join(page))?, |destination| {
        let path = destination.split('#').next().unwrap_or_default();
        if !folder.join(path).exists() {
            dead.push(format!("{}: {destination} leads nowhere", page.display()));
        }
        Ok(destination.to_owned())
    })?;
    Ok(dead)
}

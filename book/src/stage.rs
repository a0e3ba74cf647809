//! One folder with all pages of the book, and the files that they link to.
//!
//! Pages of `docs/` keep their paths; other files of the repository are copied into `repository/`. Links are changed to match.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::page::{normal, relative, with_links};

/// The table of contents, as a path of the repository.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The book's first page. Links to the README of the repository lead there, too.
const FRONT_PAGE: &str = "docs/README.md";

/// The path in the book of a path of the repository. The README of a folder becomes its index.
fn staged(path: &Path) -> PathBuf {
    let staged =
        path.strip_prefix("docs").map_or_else(|_| Path::new("repository").join(path), Path::to_owned);
    if staged.ends_with("README.md") { staged.with_file_name("index.md") } else { staged }
}

/// Copies the pages that the table of contents lists, and the files that they link to. Returns the links that lead nowhere.
pub(crate) fn copy_pages(root: &Path, folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut problems = Vec::new();
    let pages: BTreeSet<PathBuf> = copy_page(root, folder, Path::new(SUMMARY))?.into_iter().collect();
    let mut waiting: VecDeque<PathBuf> = pages.iter().cloned().collect();
    let mut files = BTreeSet::new();
    while let Some(page) = waiting.pop_front() {
        let linked = copy_page(root, folder, &page).with_context(|| page.display().to_string())?;
        for target in linked.into_iter().filter(|target| !pages.contains(target)) {
            if target.extension().is_some_and(|extension| extension == "md") {
                problems.push(format!(
                    "{} links to {}, which {SUMMARY} does not list",
                    page.display(),
                    target.display()
                ));
            } else if root.join(&target).is_file() {
                files.insert(target);
            } else {
                problems.push(format!(
                    "{} links to {}, which is not a file",
                    page.display(),
                    target.display()
                ));
            }
        }
    }
    for file in files {
        let to = folder.join(staged(&file));
        make_folder_of(&to)?;
        std::fs::copy(root.join(&file), &to).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    Ok(problems)
}

/// Copies a page with its links changed. Returns what it links to, as paths of the repository.
fn copy_page(root: &Path, folder: &Path, page: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string(root.join(page))
        .with_context(|| format!("cannot read {}", page.display()))?;
    let mut linked = Vec::new();
    let made = with_links(&text, |destination| {
        let (path, anchor) =
            destination.split_once('#').map_or((destination, None), |(path, anchor)| (path, Some(anchor)));
        let target = normal(&page.parent().unwrap_or(Path::new("")).join(path));
        if target.starts_with("..") {
            bail!("{destination} leaves the repository");
        }
        let target = if target == Path::new("README.md") { FRONT_PAGE.into() } else { target };
        let to = relative(&staged(page), &staged(&target));
        linked.push(target);
        Ok(anchor.map_or(to.clone(), |anchor| format!("{to}#{anchor}")))
    })?;
    let to = folder.join(staged(page));
    make_folder_of(&to)?;
    std::fs::write(&to, made)?;
    Ok(linked)
}

fn make_folder_of(file: &Path) -> anyhow::Result<()> {
    Ok(std::fs::create_dir_all(file.parent().context("a file is in a folder")?)?)
}

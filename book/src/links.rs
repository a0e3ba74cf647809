//! Links and anchors of the built pages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::page::{is_relative, normal};

/// The links of a folder of HTML pages that lead nowhere.
pub(crate) fn broken(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut files = Vec::new();
    list(folder, &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "html")) {
        pages.insert(file.strip_prefix(folder)?.to_owned(), std::fs::read_to_string(file)?);
    }
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(page, text)| (page, values(text, "id").collect())).collect();
    let mut problems = Vec::new();
    for (page, text) in &pages {
        for link in values(text, "href").chain(values(text, "src")) {
            // mdBook's page for a missing page has links from the root of the site.
            if page == Path::new("404.html") || !(is_relative(link) || link.starts_with('#')) {
                continue;
            }
            let (path, anchor) =
                link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let target = match path.split('?').next() {
                None | Some("") => page.clone(),
                Some(path) => normal(&page.parent().unwrap_or(Path::new("")).join(path)),
            };
            if !folder.join(&target).is_file() {
                problems.push(format!("{}: {link} leads nowhere", page.display()));
            } else if let Some(anchor) = anchor.filter(|anchor| !anchor.is_empty())
                && anchors.get(&target).is_some_and(|anchors| !anchors.contains(decoded(anchor).as_str()))
            {
                problems.push(format!("{}: {} has no heading #{anchor}", page.display(), target.display()));
            }
        }
    }
    Ok(problems)
}

/// The values of an attribute, in double quotes as mdBook writes them.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    let parts: Vec<&str> = text.split(begin.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|rest| rest.split('"').next())
}

/// An anchor without percent signs, as a browser looks for it.
fn decoded(anchor: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = anchor.bytes();
    while let Some(byte) = rest.next() {
        let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        if byte == b'%' {
            let pair = (rest.next().and_then(hex), rest.next().and_then(hex));
            bytes.extend(pair.0.zip(pair.1).map(|(high, low)| high * 16 + low));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { list(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

//! Logs of comma-separated values (RFC 4180), with the columns of a field map.
//!
//! A field is a column by its name in the first line, or by its number from 1. If the map has numbers alone, a header
//! line is optional: it is a line that has a word, such as `time`, where others have their time. A record is one line:
//! a quoted value cannot contain a line break.

use std::borrow::Cow;

use super::field_map::{Field, FieldMap};
use super::record_builder::RecordBuilder;
use super::text::plain;
use super::{Line, LineError};

/// Parses lines of CSV. Its state is the header line.
#[derive(Clone, Debug)]
pub(super) struct CsvParser {
    fields: Vec<(Field, String)>,
    columns: Columns,
    header: Vec<u8>,
}

/// Which column each field is in.
#[derive(Clone, Debug)]
enum Columns {
    /// The header line has not been read yet.
    Unknown,
    /// For each column, the fields that it holds, by their index.
    Known(Vec<Vec<usize>>),
    /// The header line does not have them all.
    Missing,
}

const MISSING: LineError = LineError("header line lacks a column named in --fields");
const UNCLOSED: LineError = LineError("value has no closing quote on this line");

impl CsvParser {
    /// The highest number of a column.
    const COLUMNS_MAX: usize = 4_096;

    pub(super) fn of_map(map: &FieldMap) -> Self {
        let numbers: Option<Vec<usize>> = map.fields.iter().map(|(_, name)| column_number(name)).collect();
        let columns = numbers.map_or(Columns::Unknown, |numbers| Columns::of(&numbers));
        Self { fields: map.fields.clone(), columns, header: Vec::new() }
    }

    #[inline(never)]
    pub(super) fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Line<'a>, LineError> {
        match &self.columns {
            Columns::Unknown => self.read_header(line).map(|()| Line::NotRequest),
            Columns::Missing => Err(MISSING),
            // Rotated logs that were put together repeat the header line.
            Columns::Known(_) if !self.header.is_empty() && line == self.header => Ok(Line::NotRequest),
            Columns::Known(columns) => record(&self.fields, columns, line).or_else(|error| {
                let is_header = self.header.is_empty() && has_word_for_time(&self.fields, columns, line);
                if is_header { Ok(Line::NotRequest) } else { Err(error) }
            }),
        }
    }

    /// The names of fields that the header line lacks, and those that it has, once it was read.
    pub(super) fn missing_columns(&self) -> Option<(Vec<&str>, String)> {
        if !matches!(self.columns, Columns::Missing) {
            return None;
        }
        let names: Vec<Cow<'_, str>> =
            CsvValues { rest: Some(&self.header) }.filter_map(Result::ok).collect();
        let is_missing = |name: &&str| {
            !names.iter().any(|known| known.trim_ascii() == *name)
                && column_number(name).is_none_or(|at| at >= names.len())
        };
        let missing = self.fields.iter().map(|(_, name)| name.as_str()).filter(is_missing).collect();
        Some((missing, names.join(", ")))
    }

    fn read_header(&mut self, line: &[u8]) -> Result<(), LineError> {
        self.columns = Columns::Missing;
        self.header = line.to_vec();
        let names: Vec<Cow<'_, str>> = CsvValues { rest: Some(line) }.collect::<Result<_, _>>()?;
        let at = |name: &str| names.iter().position(|known| known.trim_ascii() == name);
        let numbers: Option<Vec<usize>> =
            self.fields.iter().map(|(_, name)| at(name).or_else(|| column_number(name))).collect();
        self.columns = numbers
            .filter(|numbers| numbers.iter().all(|at| *at < names.len()))
            .map_or(Columns::Missing, |numbers| Columns::of(&numbers));
        if matches!(self.columns, Columns::Missing) { Err(MISSING) } else { Ok(()) }
    }
}

impl Columns {
    fn of(numbers: &[usize]) -> Self {
        let mut columns = vec![Vec::new(); numbers.iter().max().map_or(0, |last| last + 1)];
        for (field, at) in numbers.iter().enumerate() {
            if let Some(column) = columns.get_mut(*at) {
                column.push(field);
            }
        }
        Self::Known(columns)
    }
}

/// The index of a column by its number from 1.
fn column_number(name: &str) -> Option<usize> {
    name.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < CsvParser::COLUMNS_MAX)
}

fn record<'a>(
    fields: &[(Field, String)],
    columns: &[Vec<usize>],
    line: &'a [u8],
) -> Result<Line<'a>, LineError> {
    let mut builder = RecordBuilder::default();
    let mut values = CsvValues { rest: Some(line) };
    for column in columns {
        let value = values.next().ok_or(LineError("line has fewer columns than --fields needs"))??;
        for field in column.iter().filter_map(|field| fields.get(*field)) {
            builder.add(&field.0, value.clone())?;
        }
    }
    builder.finish()
}

/// True if the value of a time has letters and no digit.
fn has_word_for_time(fields: &[(Field, String)], columns: &[Vec<usize>], line: &[u8]) -> bool {
    let is_time = |field: &usize| matches!(fields.get(*field), Some((Field::Time | Field::ResponseTime, _)));
    let mut values = columns.iter().zip(CsvValues { rest: Some(line) });
    let time = values.find(|(column, _)| column.iter().any(is_time)).and_then(|(_, value)| value.ok());
    time.is_some_and(|time| {
        time.contains(|c: char| c.is_ascii_alphabetic()) && !time.contains(|c: char| c.is_ascii_digit())
    })
}

/// The values of a line that are not read yet; `None` at its end.
struct CsvValues<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for CsvValues<'a> {
    type Item = Result<Cow<'a, str>, LineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest.take()?;
        let (value, after) = match text {
            [b'"', inside @ ..] => match quoted(inside) {
                Ok(split) => split,
                Err(error) => return Some(Err(error)),
            },
            _ => {
                let (value, after) = text.split_at(memchr::memchr(b',', text).unwrap_or(text.len()));
                (plain(value), after)
            }
        };
        self.rest = match after {
            [] => None,
            [b',', rest @ ..] => Some(rest),
            _ => return Some(Err(LineError("no comma after a quoted value"))),
        };
        Some(Ok(value))
    }
}

/// Splits a text after its opening quote: the value, and the rest after the closing quote.
fn quoted(inside: &[u8]) -> Result<(Cow<'_, str>, &[u8]), LineError> {
    let mut at = 0;
    let mut has_quotes = false;
    loop {
        at += memchr::memchr(b'"', inside.get(at..).unwrap_or_default()).ok_or(UNCLOSED)?;
        let (value, after) = inside.split_at_checked(at).ok_or(UNCLOSED)?;
        match after {
            [b'"', b'"', ..] => (at, has_quotes) = (at + 2, true),
            [_, after @ ..] if has_quotes => {
                let value = plain(value).replace("\"\"", "\"");
                return Ok((Cow::Owned(value), after));
            }
            [_, after @ ..] => return Ok((plain(value), after)),
            [] => return Err(UNCLOSED),
        }
    }
}

//! Owned copies of records, kept until they are replayed in time order.
//!
//! A slot keeps its buffers when its record has been replayed, so a long log allocates almost nothing.

use std::borrow::Cow;
use std::net::IpAddr;

use ratewright_core::Timestamp;
use ratewright_core::query::AttributeName;

use crate::record::{LoggedDecision, Record};

/// Which parts of a record are kept: those that the policies or the report need.
#[derive(Clone, Debug, Default)]
pub(crate) struct NeededAttributes {
    attributes: Vec<AttributeName<String>>,
}

impl NeededAttributes {
    /// Those of them that a record has, of the attributes that requests may lack: the user, headers, cookies and claims.
    pub(crate) fn found_in<'s>(
        &'s self,
        record: &'s Record<'_>,
    ) -> impl Iterator<Item = &'s AttributeName<String>> {
        self.attributes.iter().filter(|name| {
            let is_user = **name == AttributeName::User && record.user.is_some();
            is_user || record.attributes.iter().any(|(known, _)| name.is(known))
        })
    }

    /// What policies with these needs read.
    pub(crate) fn new<'a>(needs: impl IntoIterator<Item = &'a AttributeName<String>>) -> Self {
        Self { attributes: needs.into_iter().cloned().collect() }
    }
}

/// A record without references to its line.
#[derive(Debug, Default)]
pub(crate) struct StoredRecord {
    pub(crate) at: Timestamp,
    pub(crate) is_whole_second: bool,
    address: Option<IpAddr>,
    status: Option<u16>,
    request_bytes: Option<u64>,
    /// The strings, one after the other.
    text: String,
    /// Where each of the strings ends. The end of a missing one is [`ABSENT`].
    ends: [u32; N_STRINGS],
    attributes: Vec<(AttributeName<String>, String)>,
    is_denied: Option<bool>,
}

/// The size of a buffer that is kept for the next record, in bytes.
const TEXT_KEPT: usize = 1_024;

const N_STRINGS: usize = 7;
const ABSENT: u32 = u32::MAX;

impl StoredRecord {
    /// Its size in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, value)| size_of_val(name) + value.len());
        size_of::<Self>() + self.text.len() + attributes.sum::<usize>()
    }

    /// Copies a record into this one.
    pub(crate) fn fill(&mut self, record: &Record<'_>, needed: &NeededAttributes) {
        (self.at, self.is_whole_second) = (record.at, record.is_whole_second);
        (self.address, self.status) = (record.address, record.status);
        self.request_bytes = record.request_bytes;
        self.is_denied = record.decision.as_ref().map(|decision| decision.is_denied);
        let policy = record.decision.as_ref().and_then(|decision| decision.policy.as_deref());
        let texts: [Option<&str>; N_STRINGS] = [
            Some(&record.method),
            Some(&record.target),
            record.host.as_deref(),
            record.user.as_deref(),
            record.route.as_deref(),
            record.forwarded_for.as_deref(),
            policy,
        ];
        self.text.clear();
        self.text.shrink_to(TEXT_KEPT);
        for (end, text) in self.ends.iter_mut().zip(texts) {
            *end = match text {
                Some(text) => {
                    self.text.push_str(text);
                    // A line, and so all its strings, are far shorter.
                    u32::try_from(self.text.len()).unwrap_or(0)
                }
                None => ABSENT,
            };
        }
        self.attributes.clear();
        for (name, value) in &record.attributes {
            if let Some(name) = needed.attributes.iter().find(|needed| needed.is(name)) {
                self.attributes.push((name.clone(), value.clone().into_owned()));
            }
        }
    }

    /// The record.
    pub(crate) fn record(&self) -> Record<'_> {
        let mut start = 0;
        let [method, target, host, user, route, forwarded_for, policy] = self.ends.map(|end| {
            let end = (end != ABSENT).then_some(end as usize)?;
            let text = self.text.get(start..end)?;
            start = end;
            Some(Cow::Borrowed(text))
        });
        let attributes = self.attributes.iter().map(|(name, value)| {
            (name.map(|text| Cow::Borrowed(text.as_str())), Cow::Borrowed(value.as_str()))
        });
        Record {
            at: self.at,
            is_whole_second: self.is_whole_second,
            address: self.address,
            forwarded_for,
            method: method.unwrap_or_default(),
            target: target.unwrap_or_default(),
            host,
            user,
            route,
            status: self.status,
            request_bytes: self.request_bytes,
            attributes: attributes.collect(),
            decision: self.is_denied.map(|is_denied| LoggedDecision { is_denied, policy }),
        }
    }
}

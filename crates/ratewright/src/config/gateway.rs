//! The section `gateway`: what the reverse proxy takes from clients, and how long it waits.

use std::num::NonZeroU32;
use std::time::Duration;

use ratewright_core::Micros;
use ratewright_gateway::{BodyRate, Settings, Timeouts};

use super::file;
use super::meaning::{BodyMax, BodyRateMin, ByteCount, TotalTime};
use super::reader::Reader;
use super::written::Written;

/// The longest time that anything may take.
const TIME_MAX: Micros = Micros::from_secs(86_400);

/// Times as written, by whoever wrote them.
pub(super) struct WrittenTimeouts<'a> {
    pub(super) connect: &'a Option<Written<Micros>>,
    pub(super) header: &'a Option<Written<Micros>>,
    pub(super) idle: &'a Option<Written<Micros>>,
    pub(super) total: &'a Option<Written<TotalTime>>,
    pub(super) tunnel_idle: &'a Option<Written<Micros>>,
}

impl Reader<'_> {
    /// The settings of the gateway, as yet without routes.
    pub(super) fn gateway(&mut self, written: file::Gateway) -> Settings {
        let default = Settings::default();
        let timeouts = written.timeouts.unwrap_or_default();
        let file::GatewayTimeouts { connect, header, idle, total, tunnel_idle, request_header } = &timeouts;
        let times = WrittenTimeouts { connect, header, idle, total, tunnel_idle };
        let per_address = self.read_if("gateway.connections_per_address", &written.connections_per_address);
        Settings {
            connections_max: self
                .read_if("gateway.connections_max", &written.connections_max)
                .unwrap_or(default.connections_max),
            connections_per_address: per_address.map_or(default.connections_per_address, NonZeroU32::new),
            header_max: self.header_max(&written.header_max).unwrap_or(default.header_max),
            body_max: self.body_max("gateway.body_max", &written.body_max).unwrap_or(default.body_max),
            body_rate_min: self
                .body_rate_min("gateway.body_rate_min", &written.body_rate_min)
                .unwrap_or(default.body_rate_min),
            timeouts: self.timeouts("gateway.timeouts", &times, default.timeouts),
            request_header: self
                .time("gateway.timeouts.request_header", request_header)
                .unwrap_or(default.request_header),
            strips_method_override: self
                .read_if("gateway.strip_method_override", &written.strip_method_override)
                .unwrap_or_default(),
            has_access_log: self.read_if("gateway.access_log", &written.access_log).unwrap_or_default(),
            routes: default.routes,
            explain_tokens: default.explain_tokens,
            cors: self.cors("gateway.cors", written.cors.as_ref(), None),
        }
    }

    /// How long things may take: what is written, else what holds otherwise.
    pub(super) fn timeouts(
        &mut self,
        path: &str,
        written: &WrittenTimeouts<'_>,
        others: Timeouts,
    ) -> Timeouts {
        Timeouts {
            connect: self.time(&format!("{path}.connect"), written.connect).unwrap_or(others.connect),
            header: self.time(&format!("{path}.header"), written.header).unwrap_or(others.header),
            idle: self.time(&format!("{path}.idle"), written.idle).unwrap_or(others.idle),
            total: self.time_or_none(&format!("{path}.total"), written.total).unwrap_or(others.total),
            tunnel_idle: self
                .time(&format!("{path}.tunnel_idle"), written.tunnel_idle)
                .unwrap_or(others.tunnel_idle),
        }
    }

    /// The longest body, in bytes.
    pub(super) fn body_max(&mut self, path: &str, written: &Option<Written<BodyMax>>) -> Option<u64> {
        self.read_if(path, written).map(|BodyMax(n_bytes)| n_bytes.unwrap_or(u64::MAX))
    }

    /// The least that a client must send of a body, or that there is no such limit.
    pub(super) fn body_rate_min(
        &mut self,
        path: &str,
        written: &Option<Written<BodyRateMin>>,
    ) -> Option<Option<BodyRate>> {
        let BodyRateMin(rate) = self.read_if(path, written)?;
        let Some((n_bytes, window)) = rate else { return Some(None) };
        let window = self.bounded(path, written, window)?;
        Some(Some(BodyRate { n_bytes, window }))
    }

    fn header_max(&mut self, written: &Option<Written<ByteCount>>) -> Option<u32> {
        let ByteCount(n_bytes) = self.read_if("gateway.header_max", written)?;
        let fits = u32::try_from(n_bytes)
            .ok()
            .filter(|n| (Settings::HEADER_MAX_MIN..=Settings::HEADER_MAX_MAX).contains(n));
        if fits.is_none() {
            let place = written.as_ref().and_then(|written| written.place);
            self.wrong(place, format!("gateway.header_max is {n_bytes} bytes; use 8KB to 1MB"));
        }
        fits
    }

    /// A time in which something must be done.
    pub(super) fn time(&mut self, path: &str, written: &Option<Written<Micros>>) -> Option<Duration> {
        let time = self.read_if(path, written)?;
        self.bounded(path, written, time)
    }

    /// A time that may be zero.
    pub(super) fn time_or_zero(&mut self, path: &str, written: &Option<Written<Micros>>) -> Option<Duration> {
        let time = self.read_if(path, written)?;
        if time <= TIME_MAX {
            return Some(time.into());
        }
        let place = written.as_ref().and_then(|written| written.place);
        self.wrong(place, format!("{path} must be at most 1d; use for example 30s"));
        None
    }

    /// The same, or that there is no limit.
    pub(super) fn time_or_none(
        &mut self,
        path: &str,
        written: &Option<Written<TotalTime>>,
    ) -> Option<Option<Duration>> {
        let TotalTime(time) = self.read_if(path, written)?;
        Some(time.and_then(|time| self.bounded(path, written, time)))
    }

    fn bounded<T>(&mut self, path: &str, written: &Option<Written<T>>, time: Micros) -> Option<Duration> {
        if !time.is_zero() && time <= TIME_MAX {
            return Some(time.into());
        }
        let place = written.as_ref().and_then(|written| written.place);
        self.wrong(place, format!("{path} must be more than 0s and at most 1d; use for example 30s"));
        None
    }
}

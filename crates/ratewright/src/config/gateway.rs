//! The section `gateway`: what the reverse proxy takes from clients, and how long it waits.

use std::num::NonZeroU32;
use std::time::Duration;

use ratewright_core::Micros;
use ratewright_gateway::GatewaySettings;
use ratewright_gateway::route::{BodyRate, Timeouts};

use super::SectionReader;
use ratewright_config::program_api::file;
use ratewright_config::program_api::raw_value::RawValue;
use ratewright_config::program_api::values::{BodyMax, BodyRateMin, ByteCount, TotalTime};

/// The longest time that anything may take.
const TIME_MAX: Micros = Micros::from_secs(86_400);

/// The raw timeouts of the gateway or of a route.
pub(super) struct RawTimeouts<'a> {
    pub(super) connect: &'a Option<RawValue<Micros>>,
    pub(super) header: &'a Option<RawValue<Micros>>,
    pub(super) idle: &'a Option<RawValue<Micros>>,
    pub(super) total: &'a Option<RawValue<TotalTime>>,
    pub(super) tunnel_idle: &'a Option<RawValue<Micros>>,
}

impl SectionReader<'_> {
    /// The settings of the gateway, as yet without routes.
    pub(super) fn gateway(&mut self, raw: file::Gateway) -> GatewaySettings {
        let default = GatewaySettings::default();
        let timeouts = raw.timeouts.unwrap_or_default();
        let file::GatewayTimeouts { connect, header, idle, total, tunnel_idle, request_header } = &timeouts;
        let times = RawTimeouts { connect, header, idle, total, tunnel_idle };
        let per_address = self.read_if("gateway.connections_per_address", &raw.connections_per_address);
        let per_address = per_address.map_or(default.connections_per_address, NonZeroU32::new);
        let streams = self.read_if("gateway.streams_per_address", &raw.streams_per_address);
        GatewaySettings {
            connections_max: self
                .read_if("gateway.connections_max", &raw.connections_max)
                .unwrap_or(default.connections_max),
            connections_per_address: per_address,
            streams_per_address: streams.map_or(per_address, NonZeroU32::new),
            header_max: self.header_max(&raw.header_max).unwrap_or(default.header_max),
            body_max: self.body_max("gateway.body_max", &raw.body_max).unwrap_or(default.body_max),
            body_rate_min: self
                .body_rate_min("gateway.body_rate_min", &raw.body_rate_min)
                .unwrap_or(default.body_rate_min),
            timeouts: self.timeouts("gateway.timeouts", &times, default.timeouts),
            request_header: self
                .time("gateway.timeouts.request_header", request_header)
                .unwrap_or(default.request_header),
            strips_method_override: self
                .read_if("gateway.strip_method_override", &raw.strip_method_override)
                .unwrap_or_default(),
            has_access_log: self.read_if("gateway.access_log", &raw.access_log).unwrap_or_default(),
            routes: default.routes,
            explain_tokens: default.explain_tokens,
            cors: self.cors("gateway.cors", raw.cors.as_ref(), None),
        }
    }

    /// How long things may take: what is written, else what holds otherwise.
    pub(super) fn timeouts(&mut self, path: &str, raw: &RawTimeouts<'_>, others: Timeouts) -> Timeouts {
        Timeouts {
            connect: self.time(&format!("{path}.connect"), raw.connect).unwrap_or(others.connect),
            header: self.time(&format!("{path}.header"), raw.header).unwrap_or(others.header),
            idle: self.time(&format!("{path}.idle"), raw.idle).unwrap_or(others.idle),
            total: self.time_or_none(&format!("{path}.total"), raw.total).unwrap_or(others.total),
            tunnel_idle: self
                .time(&format!("{path}.tunnel_idle"), raw.tunnel_idle)
                .unwrap_or(others.tunnel_idle),
        }
    }

    /// The longest body, in bytes.
    pub(super) fn body_max(&mut self, path: &str, raw: &Option<RawValue<BodyMax>>) -> Option<u64> {
        self.read_if(path, raw).map(|BodyMax(n_bytes)| n_bytes.unwrap_or(u64::MAX))
    }

    /// The least that a client must send of a body, or that there is no such limit.
    pub(super) fn body_rate_min(
        &mut self,
        path: &str,
        raw: &Option<RawValue<BodyRateMin>>,
    ) -> Option<Option<BodyRate>> {
        let BodyRateMin(rate) = self.read_if(path, raw)?;
        let Some((n_bytes, window)) = rate else { return Some(None) };
        let window = self.bounded(path, raw, window)?;
        Some(Some(BodyRate { n_bytes, window }))
    }

    fn header_max(&mut self, raw: &Option<RawValue<ByteCount>>) -> Option<u32> {
        let ByteCount(n_bytes) = self.read_if("gateway.header_max", raw)?;
        let fits = u32::try_from(n_bytes)
            .ok()
            .filter(|n| (GatewaySettings::HEADER_MAX_MIN..=GatewaySettings::HEADER_MAX_MAX).contains(n));
        if fits.is_none() {
            let position = raw.as_ref().and_then(|raw| raw.position);
            self.error(position, format!("gateway.header_max is {n_bytes} bytes; use 8KB to 1MB"));
        }
        fits
    }

    /// A time in which something must be done.
    pub(super) fn time(&mut self, path: &str, raw: &Option<RawValue<Micros>>) -> Option<Duration> {
        let time = self.read_if(path, raw)?;
        self.bounded(path, raw, time)
    }

    /// A time that may be zero.
    pub(super) fn time_or_zero(&mut self, path: &str, raw: &Option<RawValue<Micros>>) -> Option<Duration> {
        let time = self.read_if(path, raw)?;
        if time <= TIME_MAX {
            return Some(time.into());
        }
        let position = raw.as_ref().and_then(|raw| raw.position);
        self.error(position, format!("{path} must be at most 1d; use for example 30s"));
        None
    }

    /// The same, or that there is no limit.
    pub(super) fn time_or_none(
        &mut self,
        path: &str,
        raw: &Option<RawValue<TotalTime>>,
    ) -> Option<Option<Duration>> {
        let TotalTime(time) = self.read_if(path, raw)?;
        Some(time.and_then(|time| self.bounded(path, raw, time)))
    }

    fn bounded<T>(&mut self, path: &str, raw: &Option<RawValue<T>>, time: Micros) -> Option<Duration> {
        if !time.is_zero() && time <= TIME_MAX {
            return Some(time.into());
        }
        let position = raw.as_ref().and_then(|raw| raw.position);
        self.error(position, format!("{path} must be more than 0s and at most 1d; use for example 30s"));
        None
    }
}

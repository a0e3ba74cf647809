//! Simulations from log to report.

#![expect(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod compressed;
mod history;
mod several_logs;
mod suggestions;

use std::io::Read;

use ratewright_config::FromYaml;
use ratewright_core::Policies;
use ratewright_sim::{Format, Log, Report, SimulatedFile, SimulationSettings};

/// The fields of the lines that [`json_line`] writes.
pub(crate) fn json_format() -> Format {
    let fields = "time=t,ip=ip,method=m,path=p,status=s".parse().unwrap();
    Format::named("json", Some(fields)).unwrap()
}

/// A request at a time in microseconds.
pub(crate) fn json_line(micros: u64, ip: &str, method: &str, path: &str, status: u16) -> String {
    format!("{{\"t\":{micros},\"ip\":\"{ip}\",\"m\":\"{method}\",\"p\":\"{path}\",\"s\":{status}}}\n")
}

/// A log in memory.
pub(crate) fn log(name: &str, format: Format, text: impl Into<Vec<u8>>) -> Log {
    let text: Vec<u8> = text.into();
    Log::new(name, Some(format), move || Ok(Box::new(std::io::Cursor::new(text.clone())) as Box<dyn Read>))
}

/// A policy file.
pub(crate) fn policies(yaml: &str) -> SimulatedFile {
    let all = Policies::from_yaml(yaml).unwrap();
    // Without the policies of ad hoc keys.
    let own = all.iter().filter(|policy| yaml.contains(&format!("name: {},", policy.name()))).cloned();
    let own = Policies::new(own.collect()).unwrap().with_exempt(all.exempt().to_vec());
    SimulatedFile::new("test.yaml", own)
}

pub(crate) fn simulate(yaml: &str, logs: Vec<Log>) -> Report {
    simulate_with(yaml, logs, &SimulationSettings::default())
}

pub(crate) fn simulate_with(yaml: &str, logs: Vec<Log>, settings: &SimulationSettings) -> Report {
    ratewright_sim::simulate(policies(yaml), None, logs, settings, &mut |_| {}).unwrap()
}

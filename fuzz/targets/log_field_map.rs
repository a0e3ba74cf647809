//! A field map, in the first line of the input, and a log in JSON and CSV that it is used for.
#![no_main]

use ratewright_sim::{FieldMap, Format};

#[path = "../log_law.rs"]
mod log_law;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (map, log) = data.split_at(at);
    let Ok(map) = str::from_utf8(map) else { return };
    let fields = match map.parse::<FieldMap>() {
        Ok(fields) => fields,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text}");
            return;
        }
    };
    assert_eq!(map.parse(), Ok(fields.clone()));
    let log = log.strip_prefix(b"\n").unwrap_or(log);
    log_law::check(&Format::Json(fields.clone()), false, log);
    log_law::check(&Format::Csv(fields), true, log);
});

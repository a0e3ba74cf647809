//! Compressed logs are read whatever they are called, in several members, and with bounds.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use ratewright_sim::{Format, Log, SimulationSettings};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::{log, simulate, simulate_with};

const FILE: &str = "policies: [{name: a, by: ip, quota: {rate: 1/h, burst: 2}}]";

fn lines(first: u32, n: u32) -> String {
    (first..first + n)
        .map(|n| {
            format!(
                "192.0.2.1 - - [10/Feb/2026:08:{:02}:{:02} +0000] \"GET / HTTP/1.1\" 200 1\n",
                n / 60,
                n % 60
            )
        })
        .collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

#[test]
fn gzip_and_zstd_are_recognised_and_every_member_is_read() {
    let plain = simulate(FILE, vec![log("log", Format::Combined, lines(0, 900))]);
    assert_eq!((plain.requests, plain.policies[0].denied), (900, 898));
    let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    for compressed in [
        gzip(&lines(0, 900)),
        zstd(&lines(0, 900)),
        [gzip(&lines(0, 400)), gzip(&lines(400, 500))].concat(),
        [zstd(&lines(0, 400)), skippable.clone(), zstd(&lines(400, 500)), skippable.clone()].concat(),
        [skippable, zstd(&lines(0, 900))].concat(),
    ] {
        let report = simulate(FILE, vec![log("log", Format::Combined, compressed)]);
        assert_eq!(report, plain);
    }
}

#[test]
fn a_log_that_ends_early_is_replayed_up_to_there_and_reported() {
    let mut random = 1_u64;
    let mut line = |n: u32| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!(
            "192.0.2.1 - - [10/Feb/2026:08:{:02}:{:02} +0000] \"GET /?{random} HTTP/1.1\" 200 1\n",
            n / 60,
            n % 60
        )
    };
    let text: String = (0..20_000).map(|n| line(n / 10)).collect();
    for compressed in [gzip(&text), zstd(&text)] {
        let half = compressed[..compressed.len() / 2].to_vec();
        let report = simulate(FILE, vec![log("log", Format::Combined, half)]);
        assert!((1_000..19_000).contains(&report.requests), "{}", report.requests);
        let error = report.logs[0].error.clone().expect("an error");
        let is_noted = report.notes.iter().any(|note| note.contains("log not fully read"));
        assert!(is_noted, "{error}: {:?}", report.notes);
    }
}

#[test]
fn garbage_after_a_magic_number_is_an_error() {
    for magic in [&[0x1f, 0x8b, 1, 2, 3, 4, 5][..], &[0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff]] {
        let logs = vec![log("bad.gz", Format::Combined, magic.to_vec())];
        let error = ratewright_sim::simulate(
            crate::policies(FILE),
            None,
            logs,
            &SimulationSettings::default(),
            &mut |_| {},
        );
        let text = error.expect_err("nothing can be read").to_string();
        assert!(text.starts_with("bad.gz: "), "{text}");
    }
}

/// A line of a gigabyte takes a megabyte of gzip: neither is held in memory.
#[test]
fn a_bomb_is_bounded_by_line_and_size() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let megabyte = vec![b'x'; 1 << 20];
    (0..64).for_each(|_| encoder.write_all(&megabyte).unwrap());
    encoder.write_all(format!("\n{}", lines(0, 3)).as_bytes()).unwrap();
    let bomb = encoder.finish().unwrap();
    let report = simulate(FILE, vec![log("bomb", Format::Combined, bomb.clone())]);
    assert_eq!((report.lines, report.unreadable, report.requests), (4, 1, 3));
    let mut settings = SimulationSettings::default();
    settings.n_bytes_max = 10 << 20;
    let report = simulate_with(FILE, vec![log("bomb", Format::Combined, bomb)], &settings);
    assert!(report.logs[0].error.as_ref().unwrap().contains("--max-size"), "{:?}", report.logs[0].error);
}

#[test]
fn a_log_that_can_be_read_only_once_is_read_once() {
    let text = lines(0, 5).into_bytes();
    let report = simulate(FILE, vec![Log::once("standard input", None, std::io::Cursor::new(text))]);
    assert_eq!((report.requests, report.logs[0].format.as_str()), (5, "combined"));
}

//! Whatever stands in a policy file, it is understood, or told with its place what is wrong.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(problems) = ratewright::parse_policy_file(text) {
        assert!(!problems.is_empty(), "it is refused without a reason");
        for problem in problems {
            assert!(problem.starts_with("t.yaml"), "no place: {problem}");
        }
    }
});

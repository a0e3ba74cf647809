//! A share, exact: a percentage or a fraction.

use std::fmt;
use std::str::FromStr;

/// A share: `0.1%` or `1/1000`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeniedShare {
    part: u64,
    whole: u64,
}

impl DeniedShare {
    /// True if `part` of `whole` is at most this share. Exact.
    pub(super) fn covers(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(self.whole) <= u128::from(self.part) * u128::from(whole)
    }
}

impl FromStr for DeniedShare {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const HELP: &str = "write a percentage such as 0.1%, or a fraction such as 1/1000";
        let number = |text: &str| {
            let is_short = (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            is_short.then(|| text.parse::<u64>().ok()).flatten().ok_or(HELP)
        };
        let share = if let Some(percentage) = text.strip_suffix('%') {
            let (whole, decimals) =
                percentage.trim_end().split_once('.').unwrap_or((percentage.trim_end(), ""));
            if decimals.len() > 6 {
                return Err("use at most 6 decimals");
            }
            let decimals = format!("{decimals:0<6}");
            let millionths = number(whole)?.checked_mul(1_000_000).ok_or(HELP)? + number(&decimals)?;
            Self { part: millionths, whole: 100_000_000 }
        } else {
            let (part, whole) = text.split_once('/').ok_or(HELP)?;
            Self { part: number(part.trim())?, whole: number(whole.trim())? }
        };
        if share.whole == 0 || share.part > share.whole {
            Err("the share must be between 0% and 100%")
        } else {
            Ok(share)
        }
    }
}

/// A percentage, with the decimals that it needs.
impl fmt::Display for DeniedShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millionths = u128::from(self.part) * 100_000_000;
        if !millionths.is_multiple_of(u128::from(self.whole)) {
            return write!(f, "{}/{}", self.part, self.whole);
        }
        let millionths = millionths / u128::from(self.whole);
        let decimals = format!("{:06}", millionths % 1_000_000);
        let decimals = decimals.trim_end_matches('0');
        write!(f, "{}", millionths / 1_000_000)?;
        if !decimals.is_empty() {
            write!(f, ".{decimals}")?;
        }
        f.write_str("%")
    }
}

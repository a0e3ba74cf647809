//! Numbers for people: thousands separators, and shares in percent.

/// A count with thousands separators: `3,401,200`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 client`, `2 clients`.
pub(super) fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// `part` of `whole` in percent: `0.035%`.
///
/// The smaller of the share and its complement determines the precision, so the shares of allowed and denied requests
/// always add up to 100%. Only nothing is `0%`, and only everything is `100%`.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let part = part.min(whole);
    let is_most = part > whole - part;
    let smaller = u128::from(if is_most { whole - part } else { part });
    let whole = u128::from(whole);
    match (smaller, is_most) {
        (0, false) => return "0%".to_owned(),
        (0, true) => return "100%".to_owned(),
        (_, false) if smaller * 100_000 < whole => return "<0.001%".to_owned(),
        (_, true) if smaller * 100_000 < whole => return ">99.999%".to_owned(),
        _ => {}
    }
    let (decimals, scale) = match smaller {
        _ if smaller * 1_000 < whole => (3, 1_000),
        _ if smaller * 100 < whole => (2, 100),
        _ => (1, 10),
    };
    // Rounded half up.
    let rounded = (smaller * 100 * scale * 2 + whole) / (2 * whole);
    let shown = if is_most { 100 * scale - rounded } else { rounded };
    format!("{}.{:0decimals$}%", shown / scale, shown % scale)
}

/// `1,204 of 3,401,200 requests (0.035%)`.
pub(super) fn part_of(part: u64, whole: u64, noun: &str) -> String {
    let all = format!("{} of {}", grouped(part), counted(whole, noun));
    if whole == 0 { all } else { format!("{all} ({})", share(part, whole)) }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thousands_are_separated() {
        let shown = [0, 7, 999, 1_000, 12_345, 3_401_200, u64::MAX].map(grouped).join(" ");
        expect!["0 7 999 1,000 12,345 3,401,200 18,446,744,073,709,551,615"].assert_eq(&shown);
    }

    #[test]
    fn small_and_large_shares_keep_their_digits() {
        let shares = [(0, 5), (5, 5), (1, 1_000_000), (999_999, 1_000_000), (1_204, 3_401_200), (37, 81_220)]
            .into_iter()
            .chain([(3_399_996, 3_401_200), (12, 10_000), (1, 30), (1, 3), (2, 3), (1, 2), (0, 0)]);
        let shown: Vec<String> = shares.map(|(part, whole)| share(part, whole)).collect();
        expect!["0%, 100%, <0.001%, >99.999%, 0.035%, 0.046%, 99.965%, 0.12%, 3.3%, 33.3%, 66.7%, 50.0%, –"]
            .assert_eq(&shown.join(", "));
    }

    #[test]
    fn a_share_of_nothing_is_left_out() {
        expect!["0 of 0 requests; 1 of 1 client (100%)"].assert_eq(&format!(
            "{}; {}",
            part_of(0, 0, "request"),
            part_of(1, 1, "client")
        ));
    }

    proptest! {
        /// A share that is neither nothing nor everything is never shown as one of them.
        #[test]
        fn only_nothing_is_0_and_only_everything_is_100(part: u64, rest: u64) {
            let whole = part.saturating_add(rest);
            let shown = share(part, whole);
            let number: f64 = shown.trim_matches(['<', '>', ' ', '%']).parse().unwrap_or(0.0);
            prop_assert_eq!(shown == "100%" || number >= 100.0, part == whole && whole > 0);
            prop_assert_eq!(number == 0.0, part == 0);
        }
    }
}

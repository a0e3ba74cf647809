//! Documents that apply to some profiles only: `spring.config.activate.on-profile: prod & !eu`.

use super::properties::SpringProperty;

/// A document, and the profiles that it is for.
pub(super) struct ProfiledDocument {
    pub(super) properties: SpringProperty,
    /// The expression, as it is written. None: the document is for all profiles.
    pub(super) expression: Option<String>,
    /// The cloud platform that it is for. Such a document is never converted.
    pub(super) platform: Option<String>,
}

impl ProfiledDocument {
    pub(super) fn new(properties: SpringProperty) -> Self {
        // The second is the name before Spring Boot 2.4.
        let names = ["spring.config.activate.on-profile", "spring.profiles"];
        let expression = properties.first_of(&names).and_then(|property| {
            let texts = property.items().iter().chain([property]).filter_map(SpringProperty::text);
            let texts: Vec<_> = texts.collect();
            (!texts.is_empty()).then(|| texts.join(","))
        });
        let platform = properties.get("spring.config.activate.on-cloud-platform");
        let platform = platform.and_then(SpringProperty::text).map(str::to_owned);
        Self { properties, expression, platform }
    }

    /// True if the document applies while this profile is active.
    pub(super) fn applies(&self, profile: Option<&str>) -> bool {
        if self.platform.is_some() {
            return false;
        }
        let Some(expression) = &self.expression else { return true };
        is_active(expression, profile, 0)
    }
}

/// Evaluates an expression: a comma or `|` means or, `&` means and, `!` means not. Parentheses may be nested eight deep.
fn is_active(expression: &str, profile: Option<&str>, depth: usize) -> bool {
    let text = expression.trim();
    for (separator, is_or) in [(',', true), ('|', true), ('&', false)] {
        let parts = split_outside(text, separator);
        if parts.len() > 1 {
            let mut parts = parts.into_iter().map(|part| is_active(part, profile, depth));
            return if is_or { parts.any(|is_true| is_true) } else { parts.all(|is_true| is_true) };
        }
    }
    if let Some(inner) = text.strip_prefix('!').filter(|_| depth < 8) {
        return !is_active(inner, profile, depth + 1);
    }
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    match inner.filter(|_| depth < 8) {
        Some(inner) => is_active(inner, profile, depth + 1),
        None => Some(text) == profile || profile.is_none() && text == "default",
    }
}

/// Splits a text at a character outside of parentheses.
fn split_outside(text: &str, separator: char) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == separator && depth == 0
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        for (expression, profile, expected) in [
            ("prod", Some("prod"), true),
            ("prod", None, false),
            ("prod,dev", Some("dev"), true),
            ("!prod", None, true),
            ("!prod", Some("prod"), false),
            ("prod & eu", Some("prod"), false),
            ("prod | eu", Some("eu"), true),
            ("(prod | eu) & !dev", Some("eu"), true),
            ("default", None, true),
            ("((((((((((prod))))))))))", Some("prod"), false),
            ("", Some("prod"), false),
        ] {
            assert_eq!(is_active(expression, profile, 0), expected, "{expression} {profile:?}");
        }
    }
}

//! Which names a node may have.

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Longest name, in bytes.
pub const MOST_BYTES: usize = 128;

/// Whether a text may be the identity of a node: 1 to 128 bytes of characters that are shown. Control and format
/// characters, such as those that reverse the direction of text (U+202E), line separators and code points without a
/// meaning of their own are refused: a name in a log or on the page must look like what it is.
pub fn is_identity(text: &str) -> bool {
    (1..=MOST_BYTES).contains(&text.len()) && text.chars().all(is_shown)
}

fn is_shown(c: char) -> bool {
    !matches!(
        c.general_category(),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_1_to_128_bytes_that_are_shown() {
        for name in ["x", "node-0", "é \u{2603}", "узел 1", &"x".repeat(128)] {
            assert!(is_identity(name), "{name:?}");
        }
        // Control, bidirectional override and isolate, zero width, byte order mark, soft hyphen, line separator, private
        // use, not assigned, tag.
        for c in "\u{7}\n\u{202e}\u{2066}\u{200b}\u{feff}\u{ad}\u{2028}\u{e000}\u{378}\u{e0041}".chars() {
            assert!(!is_identity(&format!("a{c}b")), "{c:?}");
        }
        assert!(!is_identity("") && !is_identity(&"x".repeat(129)));
    }
}

//! Suite id and version syntax.

/// Longest version string, in bytes.
pub const VERSION_MAX: usize = 64;

/// Longest suite name after the prefix `suite:`, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Returns `true` if a string is a suite id: `suite:` and 1 to 64 lower-case letters, digits, `.`,
/// `_` or `-`.
pub fn is_suite_id(text: &str) -> bool {
    text.strip_prefix("suite:").is_some_and(|name| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte)
            })
    })
}

/// Returns `true` if a string is a version: 1 to [`VERSION_MAX`] letters, digits, `.`, `_`, `-` or
/// `+`.
pub fn is_version(text: &str) -> bool {
    (1..=VERSION_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_id_has_prefix_and_short_name() {
        let longest = format!("suite:{}", "a".repeat(64));
        for id in ["suite:a", "suite:lunch-2.0_b", &longest] {
            assert!(is_suite_id(id), "{id}");
        }
        let too_long = format!("{longest}a");
        for id in [
            "",
            "suite:",
            "lunch",
            "suite:A",
            "suite:ä",
            "suite:a b",
            "Suite:a",
            &too_long,
        ] {
            assert!(!is_suite_id(id), "{id}");
        }
    }

    #[test]
    fn version_is_a_short_word() {
        let longest = "1".repeat(64);
        for version in ["1", "2.0-rc.1+build_7", &longest] {
            assert!(is_version(version), "{version}");
        }
        let too_long = "1".repeat(65);
        for version in ["", "1 0", "é", "1/2", &too_long] {
            assert!(!is_version(version), "{version}");
        }
    }
}

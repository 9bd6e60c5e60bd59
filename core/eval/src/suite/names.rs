//! The names of a suite's files, and the syntax of suite ids and versions.

/// The name of the file that describes a suite.
pub const SUITE: &str = "suite.toml";

/// The name of the file with a line per item.
pub const ITEMS: &str = "items.ndjson";

/// The name of the file with a line per answer.
pub const ANSWERS: &str = "answers.ndjson";

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

/// Longest name of a suite's file, in bytes.
const FILE_NAME_BYTES_MAX: usize = 100;

/// Returns `true` if a string is the name of a file without folders: 1 to 100 letters, digits, `.`,
/// `_` or `-`.
pub fn is_file_name(text: &str) -> bool {
    (1..=FILE_NAME_BYTES_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && text.bytes().any(|byte| byte != b'.')
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

    #[test]
    fn file_name_has_no_folder() {
        for name in ["votes.csv", "A-1_b", ".x", &"a".repeat(100)] {
            assert!(is_file_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a\\b", "ü", &"a".repeat(101)] {
            assert!(!is_file_name(name), "{name}");
        }
    }
}

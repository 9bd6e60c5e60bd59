//! Properties that parsers of untrusted input have, one function each. A fuzzer calls them with
//! generated input (`tests/fuzz/targets`), and `cargo test` with the stored corpus
//! (`tests/fuzz/corpus`).
//!
//! The module contains properties and independent reference implementations, and nothing that needs
//! a server.

mod addresses;
mod bodies;
mod catalogs;
mod definitions;
mod headers;
mod json;
mod messages;
mod packages;
mod predictions;
mod queries;
mod reader_output;
mod secrets;
mod suites;
mod tables;
mod uploads;
mod words;

pub use addresses::addresses;
pub use bodies::bodies;
pub use catalogs::catalogs;
pub use definitions::definitions;
pub use headers::headers;
pub use messages::messages;
pub use packages::packages;
pub use predictions::{lines, predictions};
pub use queries::queries;
pub use secrets::secrets;
pub use suites::suites;
pub use tables::tables;
pub use uploads::uploads;
pub use words::words;

/// Words from dependencies, which no error message may contain.
const INSIDE: [&str; 12] = [
    "sqlx",
    "postgres",
    "redis",
    "serde",
    "panicked",
    ".rs:",
    "rust",
    "tokio",
    "hyper",
    "axum",
    "prost",
    "recursion",
];

/// Asserts that an error message is short and names no implementation detail.
fn assert_safe_message(message: &str) {
    let lower = message.to_lowercase();
    assert!(!INSIDE.iter().any(|word| lower.contains(word)), "{message}");
    assert!(!message.is_empty() && message.len() < 600, "{message}");
}

/// A pseudo-random generator that is seeded by the input.
struct Seeded(u64);

impl Seeded {
    fn of(data: &[u8]) -> Self {
        Self(data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// Returns a number below `bound`, which must not be 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// Splits the bytes into non-empty pieces.
    fn pieces<'a>(&mut self, data: &'a [u8]) -> Vec<&'a [u8]> {
        let largest = 1 + self.below(48);
        let mut pieces = Vec::new();
        let mut rest = data;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((1 + self.below(largest)).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces
    }
}

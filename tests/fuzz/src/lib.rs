//! What must hold of the parsers that meet the outside, whatever they are given: a function each. A fuzzer calls them with
//! what it invents (`tests/fuzz/targets`), and `cargo test` with what it has kept (`tests/fuzz/corpus`).
//!
//! What lives here: properties, and second ways to the same result. What may not: anything that needs a server.

mod addresses;
mod bodies;
mod headers;
mod json;
mod messages;
mod predictions;
mod queries;
mod secrets;
mod suites;
mod told;
mod uploads;
mod words;

pub use addresses::addresses;
pub use bodies::bodies;
pub use headers::headers;
pub use messages::messages;
pub use predictions::{lines, predictions};
pub use queries::queries;
pub use secrets::secrets;
pub use suites::suites;
pub use uploads::uploads;
pub use words::words;

/// Words of the libraries inside, which no message may hold.
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

/// A message is for people: short, and without a word of the inside.
fn fit_to_be_told(message: &str) {
    let lower = message.to_lowercase();
    assert!(!INSIDE.iter().any(|word| lower.contains(word)), "{message}");
    assert!(!message.is_empty() && message.len() < 600, "{message}");
}

/// Numbers that look random and are the same for the same input.
struct Seeded(u64);

impl Seeded {
    fn of(data: &[u8]) -> Self {
        Self(data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// One below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// The bytes in pieces, none empty.
    fn pieces<'a>(&mut self, data: &'a [u8]) -> Vec<&'a [u8]> {
        let largest = 1 + self.below(48);
        let (mut pieces, mut rest) = (Vec::new(), data);
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at((1 + self.below(largest)).min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces
    }
}

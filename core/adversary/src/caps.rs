//! The limits of an attack.

/// The submission counts that the attacker may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The submission count per organization.
    pub submissions: u32,
    /// The organization count, each with its own allowance and its own ladder.
    pub organizations: u32,
    /// `true` if a comparison uses one submission from the allowance.
    pub comparisons_count: bool,
    /// The submissions that an organization may enter in the final board. Without slices it has no
    /// effect.
    pub entries: u32,
}

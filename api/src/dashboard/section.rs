//! The navigation's sections.

/// A navigation section, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// No section is marked.
    None,
    /// The start page.
    Home,
    /// Suites, their items and submissions.
    Suites,
    /// Jobs and their comparison.
    Jobs,
    /// The catalog of models.
    Models,
    /// Usage and limits.
    Usage,
    /// API keys.
    Keys,
    /// Members and invites.
    Members,
    /// Claimed domains.
    Domains,
    /// The organization's settings and terms.
    Settings,
}

impl Section {
    /// The sections with their paths and names, in navigation order.
    pub const ALL: [(Self, &'static str, &'static str); 9] = [
        (Self::Home, "/", "Home"),
        (Self::Suites, "/suites", "Suites"),
        (Self::Jobs, "/jobs", "Jobs"),
        (Self::Models, "/models", "Models"),
        (Self::Usage, "/usage", "Usage"),
        (Self::Keys, "/keys", "Keys"),
        (Self::Members, "/members", "Members"),
        (Self::Domains, "/domains", "Domains"),
        (Self::Settings, "/settings", "Settings"),
    ];
}

//! The operations of the API, as the contract declares them. Layers, clients and tests read this table.

/// An operation: one line of the REST API, and the rpcs that mirror it.
#[derive(Debug)]
pub struct Operation {
    /// The operation id in OpenAPI.
    pub id: &'static str,
    /// The HTTP method.
    pub method: &'static str,
    /// The template of the path.
    pub path: &'static str,
    /// The paths of the rpcs. The first one is the operation's own, the others are further forms.
    pub rpcs: &'static [&'static str],
    /// The credential that the operation requires.
    pub access: Access,
    /// `true` if the organization must have accepted the terms.
    pub terms: bool,
    /// The traffic class.
    pub traffic: Traffic,
    /// The count of the rate limit.
    pub rate: Rate,
    /// The cases in which a client may send a request again.
    pub retry: Retry,
    /// The types of the audit entries that a success writes.
    pub audit: &'static [&'static str],
    /// The HTTP status of a success.
    pub success: u16,
    /// `true` if the operation waits by design.
    pub slow: bool,
}

/// The credential that an operation requires. A scope is that of an API key; sessions have all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No credential.
    Anyone,
    /// A key with this scope or any session of an organization, or none for what is public.
    Public(&'static str),
    /// Any key or session of an organization.
    Any,
    /// A key with this scope, or any session of an organization.
    Reader(&'static str),
    /// A key with this scope, or the session of a member or owner.
    Submitter(&'static str),
    /// Any session of an organization.
    Session,
    /// The session of a member or owner.
    Member,
    /// The session of an owner.
    Owner,
    /// Any session, also of a user without an organization.
    User,
}

/// The traffic class of an operation, by which the shared resources are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Reads or cancels jobs, or reads events. Has connections of its own, so that clients can follow their jobs
    /// while everything else is overloaded. A request that waits for a job holds none meanwhile.
    Jobs,
    /// Submits a job. Gets its permit when its body has arrived.
    Submission,
    /// Sends or reads so much that it may take minutes. The operations themselves limit their
    /// number.
    Large,
    /// Calls an engine. The operation limits the number of calls, and a call holds no connection.
    Serving,
    /// Everything else. Takes well below a second.
    Ordinary,
}

/// The count of the rate limit of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// The organization, or the user without one.
    Org,
    /// The network address, for sign-in emails.
    Mail,
    /// The network address, for device logins.
    Device,
    /// The network address, for one-time codes.
    Codes,
    /// The organization, or the network address of a caller without a credential.
    Public,
    /// The network address, for what is open to everyone.
    Open,
    /// Nothing: requests are not counted.
    None,
}

/// The cases in which a client may send a request again. `clients/retries.json` has the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Always.
    Repeatable,
    /// If it has an idempotency key.
    Keyed,
    /// Never after it may have arrived: it would create a second resource.
    Creating,
    /// Only if it was refused or has not arrived.
    Other,
}

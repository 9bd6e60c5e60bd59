//! An organization's audit log: what was changed, by whom, and from where.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::model::ids::{
    AuditId, DraftId, EntryId, GrantId, KeyId, OrgId, RequestId, SessionId, SuiteId, UserId,
    WebhookId,
};
use crate::model::scope::Role;
use crate::model::text_enum::text_enum;
use crate::model::timestamp::Timestamp;

text_enum! {
    /// The change kind.
    pub enum AuditType {
        /// A key was created.
        KeyCreated = "key.created",
        /// A key was replaced by a new one.
        KeyRotated = "key.rotated",
        /// A key was renamed or restricted.
        KeyUpdated = "key.updated",
        /// A key was revoked.
        KeyRevoked = "key.revoked",
        /// A user became a member.
        MemberAdded = "member.added",
        /// A membership ended.
        MemberRemoved = "member.removed",
        /// The role of a member was changed.
        MemberRoleChanged = "member.role_changed",
        /// A user was invited.
        InviteCreated = "invite.created",
        /// An invited user joined.
        InviteAccepted = "invite.accepted",
        /// An invite was revoked.
        InviteRevoked = "invite.revoked",
        /// A domain was claimed.
        DomainClaimed = "domain.claimed",
        /// A claimed domain was verified.
        DomainVerified = "domain.verified",
        /// A claim to a domain ended.
        DomainReleased = "domain.released",
        /// A setting of the organization, or of one of its domains, was changed.
        OrgUpdated = "org.updated",
        /// The terms were accepted.
        TermsAccepted = "terms.accepted",
        /// A webhook was created.
        WebhookCreated = "webhook.created",
        /// A webhook was changed, or its secret was rotated.
        WebhookUpdated = "webhook.updated",
        /// A webhook was deleted.
        WebhookDeleted = "webhook.deleted",
        /// The platform disabled a webhook, because its receiver is gone or has failed for days.
        WebhookDisabled = "webhook.disabled",
        /// A member signed in.
        SessionStarted = "session.started",
        /// A session of a member was ended.
        SessionEnded = "session.ended",
        /// A member approved the login of a program, which gets an API key.
        DeviceGranted = "device.granted",
        /// The operator changed the plan of the organization.
        PlanChanged = "plan.changed",
        /// A job was entered on a board.
        BoardEntered = "board.entered",
        /// An entry of a board was withdrawn.
        BoardWithdrawn = "board.withdrawn",
        /// A draft of a suite was created.
        DraftCreated = "draft.created",
        /// The check of a draft was requested.
        DraftChecked = "draft.checked",
        /// The publication of a draft was requested.
        DraftPublished = "draft.published",
        /// A draft was deleted.
        DraftDeleted = "draft.deleted",
        /// The operator approved a draft, which is then published.
        DraftApproved = "draft.approved",
        /// The operator rejected a draft.
        DraftRejected = "draft.rejected",
        /// The text, visibility or access of a suite was changed.
        SuiteUpdated = "suite.updated",
        /// An erratum was added to a version of a suite.
        SuiteErratumAdded = "suite.erratum_added",
        /// The retirement of a version was requested.
        SuiteRetired = "suite.retired",
        /// The operator suspended a suite of the organization.
        SuiteSuspended = "suite.suspended",
        /// The operator ended the suspension of a suite.
        SuiteResumed = "suite.resumed",
        /// The operator deleted the items and answers of a suite, or of a version.
        SuiteRemoved = "suite.removed",
        /// Other organizations were given a right to a suite.
        GrantCreated = "grant.created",
        /// The organization accepted a right to a suite.
        GrantAccepted = "grant.accepted",
        /// A right of other organizations to a suite was revoked.
        GrantRevoked = "grant.revoked",
        /// The operator or the publisher removed an entry from a board.
        BoardRemoved = "board.removed",
        /// The operator or the publisher restored a removed entry.
        BoardRestored = "board.restored",
        /// An owner read the salt that names the organization in receipts.
        ReceiptOpened = "receipt.opened",
    }
}

text_enum! {
    /// An actor's kind.
    pub enum ActorType {
        /// A user, with a session.
        Session = "session",
        /// A program, with an API key.
        ApiKey = "api_key",
        /// The publisher of a suite, in the log of another organization.
        Publisher = "publisher",
        /// The operator of the installation.
        Operator = "operator",
        /// The platform itself, for example because the DNS record of a domain is gone.
        Platform = "platform",
    }
}

text_enum! {
    /// The changed resource's kind.
    pub enum TargetType {
        /// An API key.
        Key = "key",
        /// A member, by the id of the user.
        Member = "member",
        /// An invite.
        Invite = "invite",
        /// A domain.
        Domain = "domain",
        /// The organization.
        Organization = "organization",
        /// The terms, by their version.
        Terms = "terms",
        /// A session of a member.
        Session = "session",
        /// A webhook.
        Webhook = "webhook",
        /// The login of a program.
        Device = "device",
        /// An entry of a board.
        Entry = "entry",
        /// A job.
        Job = "job",
        /// A draft of a suite.
        Draft = "draft",
        /// A suite.
        Suite = "suite",
        /// A right of other organizations to a suite.
        Grant = "grant",
    }
}

/// A change's source, with the request that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The kind of the actor.
    pub r#type: ActorType,
    /// The user, if a session made the change.
    pub user_id: Option<UserId>,
    /// The key, if a key made the change.
    pub key_id: Option<KeyId>,
    /// The request, if a member or key of the organization made the change.
    pub request: Option<RequestOrigin>,
}

impl Actor {
    /// The operator of the installation.
    pub const OPERATOR: Self = Self {
        r#type: ActorType::Operator,
        user_id: None,
        key_id: None,
        request: None,
    };

    /// The platform itself.
    pub const PLATFORM: Self = Self {
        r#type: ActorType::Platform,
        ..Self::OPERATOR
    };

    /// The publisher of a suite, to another organization.
    pub const PUBLISHER: Self = Self {
        r#type: ActorType::Publisher,
        ..Self::OPERATOR
    };

    /// Returns a user who acts with a session.
    pub const fn user(user_id: UserId, request: Option<RequestOrigin>) -> Self {
        Self {
            r#type: ActorType::Session,
            user_id: Some(user_id),
            key_id: None,
            request,
        }
    }

    /// Returns a program that acts with an API key.
    pub const fn key(key_id: KeyId, request: Option<RequestOrigin>) -> Self {
        Self {
            r#type: ActorType::ApiKey,
            user_id: None,
            key_id: Some(key_id),
            request,
        }
    }
}

/// The request that made a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestOrigin {
    /// The id of the request.
    pub request_id: RequestId,
    /// The address of the client: of IPv6 the first 64 bits.
    pub address: Arc<str>,
}

/// A change to be recorded in the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The kind of the change.
    pub r#type: AuditType,
    /// The kind of the changed resource.
    pub target_type: TargetType,
    /// The changed resource's id.
    pub target_id: String,
    /// The changed fields: `{"field": {"before": …, "after": …}}`.
    pub fields: Map<String, Value>,
}

impl Change {
    /// Creates a change without fields.
    pub fn new(r#type: AuditType, target_type: TargetType, target_id: impl Into<String>) -> Self {
        Self {
            r#type,
            target_type,
            target_id: target_id.into(),
            fields: Map::new(),
        }
    }

    /// Creates a key change.
    pub fn key(r#type: AuditType, key_id: &KeyId) -> Self {
        Self::new(r#type, TargetType::Key, key_id.as_str())
    }

    /// Creates a session change.
    pub fn session(r#type: AuditType, session_id: &SessionId) -> Self {
        Self::new(r#type, TargetType::Session, session_id.as_str())
    }

    /// Creates a draft change.
    pub fn draft(r#type: AuditType, draft_id: &DraftId) -> Self {
        Self::new(r#type, TargetType::Draft, draft_id.as_str())
    }

    /// Creates a suite change.
    pub fn suite(r#type: AuditType, suite_id: &SuiteId) -> Self {
        Self::new(r#type, TargetType::Suite, suite_id.as_str())
    }

    /// Creates a grant change.
    pub fn grant(r#type: AuditType, grant_id: &GrantId, suite_id: &SuiteId) -> Self {
        Self::new(r#type, TargetType::Grant, grant_id.as_str()).field("suite_id", (), suite_id)
    }

    /// Creates a domain change.
    pub fn domain(r#type: AuditType, domain: &str) -> Self {
        Self::new(r#type, TargetType::Domain, domain)
    }

    /// Creates a webhook change.
    pub fn webhook(r#type: AuditType, webhook_id: &WebhookId) -> Self {
        Self::new(r#type, TargetType::Webhook, webhook_id.as_str())
    }

    /// Creates a board entry change.
    pub fn entry(r#type: AuditType, entry_id: &EntryId) -> Self {
        Self::new(r#type, TargetType::Entry, entry_id.as_str())
    }

    /// Creates the setting's change whether a domain's users become members.
    pub fn auto_join(domain: &str, before: bool, after: bool) -> Self {
        Self::domain(AuditType::OrgUpdated, domain).field("auto_join", before, after)
    }

    /// Creates the change for a user who becomes a member.
    pub fn member_added(user_id: &UserId, role: Role) -> Self {
        Self::new(AuditType::MemberAdded, TargetType::Member, user_id.as_str()).field(
            "role",
            (),
            role,
        )
    }

    /// Adds a field, unless its value remains the same.
    #[must_use]
    pub fn field(mut self, name: &str, before: impl Serialize, after: impl Serialize) -> Self {
        let (before, after) = (json!(before), json!(after));
        if before != after {
            let values = json!({"before": before, "after": after});
            self.fields.insert(name.to_owned(), values);
        }
        self
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AuditEntry {
    /// The id of the entry.
    pub id: AuditId,
    /// The id of the organization.
    pub org_id: OrgId,
    /// The kind of the change.
    pub r#type: AuditType,
    /// The time of the change.
    pub created_at: Timestamp,
    /// The source of the change.
    pub actor: AuditActor,
    /// The id of the request that made the change. Null unless a session or a key
    /// of the organization made it.
    pub request_id: Option<RequestId>,
    /// The address of the client: of IPv6 the first 64 bits. Null unless a session or a
    /// key of the organization made the change.
    pub address: Option<String>,
    /// The changed resource.
    pub target: AuditTarget,
    /// The changed fields, each with its value before and after: null stands for none. Null if the
    /// change has no fields.
    #[schema(value_type = Option<Object>)]
    pub changes: Option<Map<String, Value>>,
}

/// The source of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditActor {
    /// The kind of the actor.
    pub r#type: ActorType,
    /// The id of the user. Null unless a session made the change.
    pub user_id: Option<UserId>,
    /// The email address of the user at the time of the change. Null unless a session made the
    /// change, and after the user was erased.
    pub email: Option<String>,
    /// The id of the API key. Null unless a key made the change.
    pub key_id: Option<KeyId>,
}

/// A changed resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditTarget {
    /// The kind of the resource.
    pub r#type: TargetType,
    /// The id of the resource: of a member the id of the user, of a domain its name, of terms their
    /// version.
    pub id: String,
}

/// A page of the audit log, the newest entry first.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct AuditEntries {
    /// The entries of the page.
    #[schema(max_items = 200)]
    pub entries: Vec<AuditEntry>,
    /// The `before` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub next_before: Option<AuditId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_field_is_left_out() {
        let change = Change::new(AuditType::OrgUpdated, TargetType::Organization, "org_1")
            .field("name", "Acme", "Acme")
            .field("data_use", None::<&str>, "scoring_only");
        assert_eq!(
            Value::Object(change.fields),
            json!({"data_use": {"before": null, "after": "scoring_only"}})
        );
    }
}

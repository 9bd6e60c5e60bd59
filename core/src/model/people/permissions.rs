//! A request's caller, and permission proofs.
//!
//! Operations take a proof as a parameter. Only this module creates proofs, so neither REST nor
//! gRPC can skip a check, and an operation's signature shows the credential that it requires.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use crate::model::audit::{Actor, RequestOrigin};
use crate::model::error::{Code, Error, Result};
use crate::model::error_details::{OrgChoice, Resource};
use crate::model::ids::{KeyId, OrgId, SessionId, UserId};
use crate::model::org::{Org, Plan};
use crate::model::scope::{Role, Scope, Scopes};
use crate::model::terms::CurrentTerms;
use crate::model::timestamp::Timestamp;

/// The caller that a credential identifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// An API key. It belongs to its organization, not to the user who created it.
    ApiKey {
        /// The id of the key.
        key_id: KeyId,
        /// The operations that the key may be used for.
        scopes: Scopes,
    },
    /// A user who has signed in.
    Session {
        /// The id of the session.
        session_id: SessionId,
        /// The id of the user.
        user_id: UserId,
    },
}

/// The organization that a credential resolves to, with its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The organization, with the caller's role.
    pub org: Org,
    /// The organization plan's limits.
    pub plan: Plan,
    /// The current terms, if the organization has not accepted them.
    pub unaccepted_terms: Option<Arc<CurrentTerms>>,
    /// Set while the operator has suspended the organization. Then no proof for it can be created.
    pub is_suspended: bool,
}

/// A valid credential. It identifies the caller, but grants no permission by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The caller's key or session.
    pub principal: Principal,
    /// The organization that the credential resolves to, if there is one.
    pub membership: Option<Membership>,
    /// The organizations for a caller that must choose one first. Otherwise empty.
    pub choices: Vec<OrgChoice>,
    /// `true` if the request names an organization. Without a membership, that organization does
    /// not exist for the caller.
    pub is_org_requested: bool,
    /// The time at which the credential expires, if it is a key that expires soon.
    pub expires_soon_at: Option<Timestamp>,
    /// The request that carries the credential.
    pub request: Option<RequestOrigin>,
}

/// A proof for a permission, which a credential may or may not have.
pub trait Proof: Sized {
    /// Returns the proof.
    ///
    /// # Errors
    /// The reason why the credential does not have the permission: 403, or 404 or 409 if it
    /// resolves to no organization.
    fn from_credential(credential: &Credential) -> Result<Self>;
}

fn membership(credential: &Credential) -> Result<&Membership> {
    let no_org = || match credential.is_org_requested {
        true => Error::not_found(Resource::Organization),
        false if !credential.choices.is_empty() => Error::choose_org(credential.choices.clone()),
        false => Error::new(
            Code::OrgRequired,
            "This credential resolves to no organization. Join one or create one first.",
        ),
    };
    let membership = credential.membership.as_ref().ok_or_else(no_org)?;
    if membership.is_suspended {
        Err(Error::org_suspended())
    } else {
        Ok(membership)
    }
}

fn signed_in(credential: &Credential) -> Result<(&SessionId, &UserId)> {
    match &credential.principal {
        Principal::Session {
            session_id,
            user_id,
        } => Ok((session_id, user_id)),
        Principal::ApiKey { .. } => Err(Error::new(
            Code::SessionRequired,
            "This operation requires a session token; an API key cannot be used.",
        )),
    }
}

/// Returns an error if the caller is a key without this scope. Sessions have all scopes.
fn require_scope(scope: Scope, principal: &Principal) -> Result<()> {
    match principal {
        Principal::ApiKey { scopes, .. } if !scopes.contains(scope) => {
            Err(Error::out_of_scope(scope))
        }
        Principal::ApiKey { .. } | Principal::Session { .. } => Ok(()),
    }
}

fn require_role(role: Role, membership: &Membership) -> Result<()> {
    if membership.org.role >= role {
        return Ok(());
    }
    let message = format!(
        "Your role in this organization is {}; this operation requires {role}.",
        membership.org.role
    );
    Err(Error::new(Code::Forbidden, message))
}

/// Proof for any organization credential, which can read.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Principal,
    membership: Membership,
    request: Option<RequestOrigin>,
}

impl Caller {
    /// Returns the organization's id, to which every query is restricted.
    pub fn org_id(&self) -> &OrgId {
        &self.membership.org.id
    }

    /// Returns the key or the session of the caller.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the actor for changes that the caller makes.
    pub fn actor(&self) -> Actor {
        let request = self.request.clone();
        match &self.principal {
            Principal::ApiKey { key_id, .. } => Actor::key(key_id.clone(), request),
            Principal::Session { user_id, .. } => Actor::user(user_id.clone(), request),
        }
    }

    /// Returns the id of the user or key.
    pub fn actor_id(&self) -> &str {
        match &self.principal {
            Principal::ApiKey { key_id, .. } => key_id.as_str(),
            Principal::Session { user_id, .. } => user_id.as_str(),
        }
    }

    /// Returns the organization as the caller sees it.
    pub fn org(&self) -> &Org {
        &self.membership.org
    }

    /// Returns the organization plan's limits.
    pub fn plan(&self) -> &Plan {
        &self.membership.plan
    }

    /// Returns the proof that the caller can also submit, for operations that use up an allowance
    /// only sometimes.
    ///
    /// # Errors
    /// 403 if the caller's role is `viewer`.
    pub fn submitter(&self) -> Result<Submitter> {
        require_role(Role::Member, &self.membership)?;
        Ok(Submitter(self.clone()))
    }

    /// Returns an error unless the caller is an owner's session, for operations that require one only sometimes.
    ///
    /// # Errors
    /// 403 if the caller is a key, or another member.
    pub fn require_owner_session(&self) -> Result<()> {
        match self.principal {
            Principal::Session { .. } => require_role(Role::Owner, &self.membership),
            Principal::ApiKey { .. } => Err(Error::new(
                Code::Forbidden,
                "To make a suite public takes the session of an owner; an API key cannot do it.",
            )),
        }
    }

    /// Returns an error unless the caller has this scope, for operations that require it only
    /// sometimes.
    ///
    /// # Errors
    /// 403 if the caller is a key without the scope.
    pub fn require_scope(&self, scope: Scope) -> Result<()> {
        require_scope(scope, &self.principal)
    }
}

impl Proof for Caller {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let membership = membership(credential)?.clone();
        Ok(Self {
            principal: credential.principal.clone(),
            membership,
            request: credential.request.clone(),
        })
    }
}

/// Proof for an API key, or for a member's or owner's session, which can submit.
#[derive(Debug, Clone)]
pub struct Submitter(Caller);

impl Submitter {
    /// Returns the proof for operations that any credential can use.
    pub fn caller(&self) -> &Caller {
        &self.0
    }
}

impl Proof for Submitter {
    fn from_credential(credential: &Credential) -> Result<Self> {
        require_role(Role::Member, membership(credential)?)?;
        Caller::from_credential(credential).map(Self)
    }
}

/// Proof for a session. The user need not belong to an organization.
#[derive(Debug, Clone)]
pub struct User {
    session_id: SessionId,
    user_id: UserId,
    actor: Actor,
}

impl User {
    /// Returns the session's id.
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// Returns the user's id.
    pub fn user_id(&self) -> &UserId {
        &self.user_id
    }

    /// Returns the actor for changes that the user makes.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }
}

impl Proof for User {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let (session_id, user_id) = signed_in(credential)?;
        Ok(Self {
            session_id: session_id.clone(),
            user_id: user_id.clone(),
            actor: Actor::user(user_id.clone(), credential.request.clone()),
        })
    }
}

/// Proof for a session that acts for an organization, with any role.
#[derive(Debug, Clone)]
pub struct Session {
    user_id: UserId,
    org_id: OrgId,
    actor: Actor,
}

impl Session {
    /// Returns the user's id.
    pub fn user_id(&self) -> &UserId {
        &self.user_id
    }

    /// Returns the organization's id, to which every query is restricted.
    pub fn org_id(&self) -> &OrgId {
        &self.org_id
    }

    /// Returns the actor for changes that the user makes.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }
}

impl Proof for Session {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let (_, user_id) = signed_in(credential)?;
        Ok(Self {
            user_id: user_id.clone(),
            org_id: membership(credential)?.org.id.clone(),
            actor: Actor::user(user_id.clone(), credential.request.clone()),
        })
    }
}

/// Proof for a member's or owner's session, which can manage keys.
#[derive(Debug, Clone)]
pub struct Member(Session);

impl Member {
    /// Returns the proof for operations that any session in the organization can use.
    pub fn session(&self) -> &Session {
        &self.0
    }
}

impl Proof for Member {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let session = Session::from_credential(credential)?;
        require_role(Role::Member, membership(credential)?)?;
        Ok(Self(session))
    }
}

/// Proof for an owner's session, which can manage the organization, its members, invites,
/// domains and terms.
#[derive(Debug, Clone)]
pub struct Owner(Session);

impl Owner {
    /// Returns the proof for operations that any session in the organization can use.
    pub fn session(&self) -> &Session {
        &self.0
    }
}

impl Proof for Owner {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let session = Session::from_credential(credential)?;
        require_role(Role::Owner, membership(credential)?)?;
        Ok(Self(session))
    }
}

/// The proof `P` for a caller that has the scope `S`.
#[derive(Debug, Clone)]
pub struct InScope<P, S> {
    proof: P,
    scope: PhantomData<S>,
}

/// A scope as a type, which a proof names.
pub trait RequiredScope {
    /// The scope.
    const SCOPE: Scope;
}

impl<P, S> Deref for InScope<P, S> {
    type Target = P;
    fn deref(&self) -> &P {
        &self.proof
    }
}

impl<P: Proof, S: RequiredScope> Proof for InScope<P, S> {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let proof = P::from_credential(credential)?;
        require_scope(S::SCOPE, &credential.principal)?;
        Ok(Self {
            proof,
            scope: PhantomData,
        })
    }
}

/// Declares each scope as a type with the same name.
macro_rules! scope_types {
    ($($scope:ident)*) => {
        /// The scopes as types.
        pub mod scopes {
            use super::{RequiredScope, Scope};
            $(
                #[doc = concat!("The scope `Scope::", stringify!($scope), "`.")]
                #[derive(Debug, Clone)]
                pub struct $scope;

                impl RequiredScope for $scope {
                    const SCOPE: Scope = Scope::$scope;
                }
            )*
        }
    };
}

scope_types! { SuitesRead SuitesWrite EvalsWrite UploadsWrite JobsRead JobsCancel UsageRead ModelsRead ModelsRun }

/// Proof for a credential that can read suites.
pub type SuiteReader = InScope<Caller, scopes::SuitesRead>;

/// Proof for a credential that can publish the organization's suites.
pub type Publisher = InScope<Submitter, scopes::SuitesWrite>;

/// Proof for a credential that can read what the organization, as a publisher, has and sees.
pub type PublisherReader = InScope<Submitter, scopes::SuitesRead>;

/// Proof that a caller can read public suites and boards, and with a credential also the others that its
/// organization sees.
#[derive(Debug, Clone)]
pub struct SuiteVisitor {
    org_id: Option<OrgId>,
}

impl SuiteVisitor {
    /// Returns the proof for a request with this credential, if it has one.
    ///
    /// # Errors
    /// The reason why the credential cannot read suites.
    pub fn of(credential: Option<&Credential>) -> Result<Self> {
        credential.map_or(Ok(Self { org_id: None }), Self::from_credential)
    }

    /// Returns the organization, if the request has a credential.
    pub fn org_id(&self) -> Option<&OrgId> {
        self.org_id.as_ref()
    }
}

impl Proof for SuiteVisitor {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let reader = SuiteReader::from_credential(credential)?;
        Ok(Self {
            org_id: Some(reader.org_id().clone()),
        })
    }
}

/// Proof that a caller can read the receipts on public boards, and with a credential also those on
/// other boards and the organization's.
#[derive(Debug, Clone)]
pub struct ReceiptCaller {
    org_id: Option<OrgId>,
}

impl ReceiptCaller {
    /// Returns the proof for a request with this credential, if it has one.
    ///
    /// # Errors
    /// The reason why the credential cannot read jobs.
    pub fn of(credential: Option<&Credential>) -> Result<Self> {
        credential.map_or(Ok(Self { org_id: None }), Self::from_credential)
    }

    /// Returns the organization, if the request has a credential.
    pub fn org_id(&self) -> Option<&OrgId> {
        self.org_id.as_ref()
    }
}

impl Proof for ReceiptCaller {
    /// A receipt has a job's figures.
    fn from_credential(credential: &Credential) -> Result<Self> {
        let reader = JobReader::from_credential(credential)?;
        Ok(Self {
            org_id: Some(reader.org_id().clone()),
        })
    }
}

/// Proof for a credential that can read jobs and compare them.
pub type JobReader = InScope<Caller, scopes::JobsRead>;

/// Proof for a credential that can cancel jobs.
pub type JobCanceller = InScope<Submitter, scopes::JobsCancel>;

/// Proof for a credential that can read the organization's usage.
pub type UsageReader = InScope<Caller, scopes::UsageRead>;

/// Proof for a credential that can read the model catalog.
pub type ModelReader = InScope<Caller, scopes::ModelsRead>;

/// Proof for a credential that can call models.
pub type ModelRunner = InScope<Submitter, scopes::ModelsRun>;

/// Proof for a credential that can submit evals and choose final jobs.
pub type EvalSubmitter = InScope<Submitter, scopes::EvalsWrite>;

/// Proof for a credential that can read uploads.
pub type UploadReader = InScope<Caller, scopes::UploadsWrite>;

/// Proof for a credential that can create and delete uploads.
pub type Uploader = InScope<Submitter, scopes::UploadsWrite>;

/// The proof `P` for a caller whose organization has accepted the current terms, if there are any.
#[derive(Debug, Clone)]
pub struct TermsAccepted<P>(P);

impl<P> TermsAccepted<P> {
    /// Returns the proof without the accepted terms.
    pub fn proof(&self) -> &P {
        &self.0
    }
}

impl<P: Proof> Proof for TermsAccepted<P> {
    fn from_credential(credential: &Credential) -> Result<Self> {
        let proof = P::from_credential(credential)?;
        let Some(terms) = &membership(credential)?.unaccepted_terms else {
            return Ok(Self(proof));
        };
        Err(Error::terms_not_accepted(terms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error_details::Details;
    use crate::model::org::DataUse;

    fn credential(key: bool, role: Option<Role>) -> Credential {
        let user_id = UserId::random().unwrap();
        let principal = if key {
            Principal::ApiKey {
                key_id: KeyId::random().unwrap(),
                scopes: Scopes::All,
            }
        } else {
            Principal::Session {
                session_id: SessionId::random().unwrap(),
                user_id,
            }
        };
        let membership = role.map(|role| Membership {
            org: Org {
                id: OrgId::random().unwrap(),
                name: "o".into(),
                plan: "free".into(),
                data_use: DataUse::ScoringOnly,
                role,
                created_at: Timestamp::now(),
                handle: None,
            },
            plan: Plan::with_equal_limits(60),
            unaccepted_terms: None,
            is_suspended: false,
        });
        Credential {
            principal,
            membership,
            choices: Vec::new(),
            is_org_requested: false,
            expires_soon_at: None,
            request: None,
        }
    }

    fn code<P: Proof>(credential: &Credential) -> Option<Code> {
        P::from_credential(credential).err().map(|error| error.code)
    }

    #[test]
    fn proofs_require_credential_and_role() {
        let key = credential(true, Some(Role::Member));
        let viewer = credential(false, Some(Role::Viewer));
        let member = credential(false, Some(Role::Member));
        let owner = credential(false, Some(Role::Owner));
        let stranger = credential(false, None);
        let codes = |c: &Credential| {
            [
                code::<Caller>(c),
                code::<Submitter>(c),
                code::<User>(c),
                code::<Session>(c),
                code::<Member>(c),
                code::<Owner>(c),
            ]
        };
        let forbidden = Some(Code::Forbidden);
        let session = Some(Code::SessionRequired);
        let org = Some(Code::OrgRequired);
        assert_eq!(
            codes(&key),
            [None, None, session, session, session, session]
        );
        assert_eq!(
            codes(&viewer),
            [None, forbidden, None, None, forbidden, forbidden]
        );
        assert_eq!(codes(&member), [None, None, None, None, None, forbidden]);
        assert_eq!(codes(&owner), [None; 6]);
        assert_eq!(codes(&stranger), [org, org, None, org, org, org]);
    }

    #[test]
    fn key_without_scope_is_refused() {
        let narrow = |mut credential: Credential| {
            if let Principal::ApiKey { scopes, .. } = &mut credential.principal {
                *scopes = Scopes::Only(vec![Scope::JobsRead]);
            }
            credential
        };
        let key = narrow(credential(true, Some(Role::Member)));
        assert_eq!(code::<Caller>(&key), None);
        assert_eq!(code::<JobReader>(&key), None);
        let refused = EvalSubmitter::from_credential(&key).unwrap_err();
        assert_eq!(refused.code, Code::Forbidden);
        assert_eq!(
            refused.details,
            Some(Details::Scope {
                required: Scope::EvalsWrite
            })
        );
        let session = narrow(credential(false, Some(Role::Member)));
        assert_eq!(code::<EvalSubmitter>(&session), None);
        let suspended = |mut credential: Credential| {
            credential.membership.as_mut().unwrap().is_suspended = true;
            credential
        };
        assert!(
            matches!(
                EvalSubmitter::from_credential(&suspended(key))
                    .unwrap_err()
                    .details,
                Some(Details::OrgSuspended)
            ),
            "the organization's state goes first"
        );
    }

    #[test]
    fn suspended_org_allows_user_proof_only() {
        let suspended = |mut credential: Credential| {
            credential.membership.as_mut().unwrap().is_suspended = true;
            credential
        };
        let refusal = |error: Error| {
            (
                error.code,
                matches!(error.details, Some(Details::OrgSuspended)),
            )
        };
        let key = suspended(credential(true, Some(Role::Member)));
        let owner = suspended(credential(false, Some(Role::Owner)));
        for caller in [&key, &owner] {
            assert_eq!(
                Caller::from_credential(caller)
                    .map_err(refusal)
                    .unwrap_err(),
                (Code::Forbidden, true)
            );
            assert_eq!(
                Submitter::from_credential(caller)
                    .map_err(refusal)
                    .unwrap_err(),
                (Code::Forbidden, true)
            );
        }
        assert_eq!(
            Session::from_credential(&owner)
                .map_err(refusal)
                .unwrap_err(),
            (Code::Forbidden, true)
        );
        assert_eq!(
            Member::from_credential(&owner)
                .map_err(refusal)
                .unwrap_err(),
            (Code::Forbidden, true)
        );
        assert_eq!(
            Owner::from_credential(&owner).map_err(refusal).unwrap_err(),
            (Code::Forbidden, true)
        );
        assert_eq!(
            code::<User>(&owner),
            None,
            "a user can sign out, and may belong to other organizations"
        );
    }

    #[test]
    fn session_without_chosen_org_is_a_conflict() {
        let mut credential = credential(false, None);
        credential.choices = vec![OrgChoice {
            id: OrgId::random().unwrap(),
            name: "o".into(),
        }];
        assert_eq!(code::<Caller>(&credential), Some(Code::Conflict));
        assert_eq!(code::<Owner>(&credential), Some(Code::Conflict));
        assert_eq!(code::<User>(&credential), None);
        credential.is_org_requested = true;
        assert_eq!(code::<Caller>(&credential), Some(Code::NotFound));
    }

    #[test]
    fn missing_permission_precedes_missing_terms() {
        let mut credentials = [
            credential(true, Some(Role::Member)),
            credential(false, Some(Role::Viewer)),
            credential(false, Some(Role::Owner)),
        ];
        let terms = Arc::new(CurrentTerms {
            version: "2".into(),
            url: "https://example.org/terms".into(),
        });
        for credential in &mut credentials {
            assert_eq!(code::<TermsAccepted<Caller>>(credential), None);
            credential.membership.as_mut().unwrap().unaccepted_terms = Some(Arc::clone(&terms));
        }
        let terms_refusal = |credential: &Credential| {
            let error = TermsAccepted::<Member>::from_credential(credential).unwrap_err();
            (
                error.code,
                matches!(error.details, Some(Details::TermsNotAccepted { .. })),
            )
        };
        assert_eq!(
            credentials.map(|credential| terms_refusal(&credential)),
            [
                (Code::SessionRequired, false),
                (Code::Forbidden, false),
                (Code::Forbidden, true)
            ]
        );
    }
}

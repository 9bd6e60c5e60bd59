//! Who calls, and the proofs of what they may do.
//!
//! Operations take a proof as a parameter. Only this module makes proofs, so no transport can skip a check, and
//! the credential column of the endpoint table can be read off the operations' signatures.

use std::sync::Arc;

use crate::model::error::{Code, Details, Error, Resource, Result};
use crate::model::ids::{KeyId, OrgId, SessionId, UserId};
use crate::model::org::{Org, OrgChoice, Plan, Role};
use crate::model::terms::CurrentTerms;

/// What kind of credential was presented, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// An API key. It belongs to its organization, not to the person who made it.
    ApiKey {
        /// The key.
        key_id: KeyId,
    },
    /// A signed-in person.
    Session {
        /// The session.
        session_id: SessionId,
        /// The person.
        user_id: UserId,
    },
}

/// An organization as the credential's holder sees it, with what its plan grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The organization, with the caller's role.
    pub org: Org,
    /// What its plan grants.
    pub plan: Plan,
    /// The terms that hold now, if it has not accepted them.
    pub terms_owed: Option<Arc<CurrentTerms>>,
    /// Whether the operator has suspended the organization. Then no proof that names it can be made.
    pub is_suspended: bool,
}

/// A valid credential. It proves who calls, not that they may do anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Who calls.
    pub principal: Principal,
    /// For whom, if for anyone.
    pub membership: Option<Membership>,
    /// Where the caller must choose an organization first: those there are. Otherwise empty.
    pub choices: Vec<OrgChoice>,
    /// Whether the caller asked for a certain organization. Then having none means that there is no such one.
    pub asked_for_org: bool,
}

/// A proof that can be had from a credential, or the refusal that its absence means.
pub trait Permit: Sized {
    /// The proof, or 403 with the code that says why not.
    fn permit(credential: &Credential) -> Result<Self>;
}

fn membership(credential: &Credential) -> Result<&Membership> {
    let none = || match credential.asked_for_org {
        true => Error::not_found(Resource::Organization),
        false if !credential.choices.is_empty() => Error::choose_org(credential.choices.clone()),
        false => Error::new(
            Code::OrgRequired,
            "This credential resolves to no organization. Join one or create one first.",
        ),
    };
    let membership = credential.membership.as_ref().ok_or_else(none)?;
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
            "This operation needs a session token of a signed-in person; an API key cannot do it.",
        )),
    }
}

fn at_least(role: Role, membership: &Membership) -> Result<()> {
    if membership.org.role >= role {
        return Ok(());
    }
    let message = format!(
        "Your role in this organization is {}; this operation needs {role}.",
        membership.org.role
    );
    Err(Error::new(Code::Forbidden, message))
}

/// Any credential of an organization: may read.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Principal,
    membership: Membership,
}

impl Caller {
    /// The organization that opens every query.
    pub fn org_id(&self) -> &OrgId {
        &self.membership.org.id
    }

    /// Who calls.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The organization as the caller sees it.
    pub fn org(&self) -> &Org {
        &self.membership.org
    }

    /// What the organization's plan grants.
    pub fn plan(&self) -> &Plan {
        &self.membership.plan
    }

    /// The proof that the caller may also submit, for operations that only sometimes use up an allowance. The error is 403.
    pub fn submitter(&self) -> Result<Submitter> {
        at_least(Role::Member, &self.membership)?;
        Ok(Submitter(self.clone()))
    }
}

impl Permit for Caller {
    fn permit(credential: &Credential) -> Result<Self> {
        let membership = membership(credential)?.clone();
        Ok(Self {
            principal: credential.principal.clone(),
            membership,
        })
    }
}

/// A key, or the session of a member or owner: may submit.
#[derive(Debug, Clone)]
pub struct Submitter(Caller);

impl Submitter {
    /// The same caller, for what any credential may do.
    pub fn caller(&self) -> &Caller {
        &self.0
    }
}

impl Permit for Submitter {
    fn permit(credential: &Credential) -> Result<Self> {
        at_least(Role::Member, membership(credential)?)?;
        Caller::permit(credential).map(Self)
    }
}

/// The session of a person, whether or not they belong to an organization.
#[derive(Debug, Clone)]
pub struct Person {
    session_id: SessionId,
    user_id: UserId,
}

impl Person {
    /// The session.
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }

    /// The person.
    pub fn user_id(&self) -> &UserId {
        &self.user_id
    }
}

impl Permit for Person {
    fn permit(credential: &Credential) -> Result<Self> {
        let (session_id, user_id) = signed_in(credential)?;
        Ok(Self {
            session_id: session_id.clone(),
            user_id: user_id.clone(),
        })
    }
}

/// The session of a person in an organization, whatever their role.
#[derive(Debug, Clone)]
pub struct Session {
    user_id: UserId,
    org_id: OrgId,
}

impl Session {
    /// The person.
    pub fn user_id(&self) -> &UserId {
        &self.user_id
    }

    /// The organization that opens every query.
    pub fn org_id(&self) -> &OrgId {
        &self.org_id
    }
}

impl Permit for Session {
    fn permit(credential: &Credential) -> Result<Self> {
        let (_, user_id) = signed_in(credential)?;
        Ok(Self {
            user_id: user_id.clone(),
            org_id: membership(credential)?.org.id.clone(),
        })
    }
}

/// The session of a member or owner: may manage keys.
#[derive(Debug, Clone)]
pub struct Member(Session);

impl Member {
    /// The same person, for what any session may do.
    pub fn session(&self) -> &Session {
        &self.0
    }
}

impl Permit for Member {
    fn permit(credential: &Credential) -> Result<Self> {
        let session = Session::permit(credential)?;
        at_least(Role::Member, membership(credential)?)?;
        Ok(Self(session))
    }
}

/// The session of an owner: may manage the organization, its members, invites, domains and terms.
#[derive(Debug, Clone)]
pub struct Owner(Session);

impl Owner {
    /// The same person, for what any session may do.
    pub fn session(&self) -> &Session {
        &self.0
    }
}

impl Permit for Owner {
    fn permit(credential: &Credential) -> Result<Self> {
        let session = Session::permit(credential)?;
        at_least(Role::Owner, membership(credential)?)?;
        Ok(Self(session))
    }
}

/// A proof of somebody whose organization has accepted the terms that hold now, where there are any.
#[derive(Debug, Clone)]
pub struct TermsAccepted<P>(P);

impl<P> TermsAccepted<P> {
    /// The proof of who it is.
    pub fn who(&self) -> &P {
        &self.0
    }
}

impl<P: Permit> Permit for TermsAccepted<P> {
    fn permit(credential: &Credential) -> Result<Self> {
        let proof = P::permit(credential)?;
        let Some(terms) = &membership(credential)?.terms_owed else {
            return Ok(Self(proof));
        };
        let CurrentTerms { version, url } = terms.as_ref();
        let message = format!(
            "An owner of your organization must first accept version {version} of the terms: {url}"
        );
        let details = Details::Terms {
            reason: "terms_not_accepted",
            version: version.clone(),
            url: url.clone(),
        };
        Err(Error {
            details: Some(details),
            ..Error::new(Code::Forbidden, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::org::DataUse;
    use crate::model::timestamp::Timestamp;

    fn credential(key: bool, role: Option<Role>) -> Credential {
        let user_id = UserId::random().unwrap();
        let principal = if key {
            Principal::ApiKey {
                key_id: KeyId::random().unwrap(),
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
            },
            plan: Plan {
                requests_per_minute: 60,
                eval_items_per_month: 1,
                concurrent_jobs: 1,
                upload_bytes_max: 1,
                storage_bytes: 10,
            },
            terms_owed: None,
            is_suspended: false,
        });
        Credential {
            principal,
            membership,
            choices: Vec::new(),
            asked_for_org: false,
        }
    }

    fn code<P: Permit>(credential: &Credential) -> Option<Code> {
        P::permit(credential).err().map(|error| error.code)
    }

    #[test]
    fn each_proof_is_given_to_those_who_may_and_refused_with_the_reason() {
        let key = credential(true, Some(Role::Member));
        let viewer = credential(false, Some(Role::Viewer));
        let member = credential(false, Some(Role::Member));
        let owner = credential(false, Some(Role::Owner));
        let stranger = credential(false, None);
        let codes = |c: &Credential| {
            [
                code::<Caller>(c),
                code::<Submitter>(c),
                code::<Person>(c),
                code::<Session>(c),
                code::<Member>(c),
                code::<Owner>(c),
            ]
        };
        let (forbidden, session, org) = (
            Some(Code::Forbidden),
            Some(Code::SessionRequired),
            Some(Code::OrgRequired),
        );
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
    fn suspended_org_gives_no_proof_but_of_the_person() {
        let suspended = |mut credential: Credential| {
            credential.membership.as_mut().unwrap().is_suspended = true;
            credential
        };
        let refused = |error: Error| {
            (
                error.code,
                matches!(error.details, Some(Details::OrgSuspended { .. })),
            )
        };
        let key = suspended(credential(true, Some(Role::Member)));
        let owner = suspended(credential(false, Some(Role::Owner)));
        for caller in [&key, &owner] {
            assert_eq!(
                Caller::permit(caller).map_err(refused).unwrap_err(),
                (Code::Forbidden, true)
            );
            assert_eq!(
                Submitter::permit(caller).map_err(refused).unwrap_err(),
                (Code::Forbidden, true)
            );
        }
        assert_eq!(
            Session::permit(&owner).map_err(refused).unwrap_err(),
            (Code::Forbidden, true)
        );
        assert_eq!(
            Member::permit(&owner).map_err(refused).unwrap_err(),
            (Code::Forbidden, true)
        );
        assert_eq!(
            Owner::permit(&owner).map_err(refused).unwrap_err(),
            (Code::Forbidden, true)
        );
        assert_eq!(
            code::<Person>(&owner),
            None,
            "a person can sign out, and may belong to other organizations"
        );
    }

    #[test]
    fn session_that_must_choose_is_a_conflict() {
        let mut credential = credential(false, None);
        credential.choices = vec![OrgChoice {
            id: OrgId::random().unwrap(),
            name: "o".into(),
        }];
        assert_eq!(code::<Caller>(&credential), Some(Code::Conflict));
        assert_eq!(code::<Owner>(&credential), Some(Code::Conflict));
        assert_eq!(code::<Person>(&credential), None);
        credential.asked_for_org = true;
        assert_eq!(code::<Caller>(&credential), Some(Code::NotFound));
    }

    #[test]
    fn who_must_accept_terms_first_is_told_so_after_what_they_may_not_do_at_all() {
        let mut owing = [
            credential(true, Some(Role::Member)),
            credential(false, Some(Role::Viewer)),
            credential(false, Some(Role::Owner)),
        ];
        let terms = Arc::new(CurrentTerms {
            version: "2".into(),
            url: "https://example.org/terms".into(),
        });
        for credential in &mut owing {
            assert_eq!(code::<TermsAccepted<Caller>>(credential), None);
            credential.membership.as_mut().unwrap().terms_owed = Some(Arc::clone(&terms));
        }
        let owed = |credential: &Credential| {
            let error = TermsAccepted::<Member>::permit(credential).unwrap_err();
            (
                error.code,
                matches!(error.details, Some(Details::Terms { .. })),
            )
        };
        assert_eq!(
            owing.map(|credential| owed(&credential)),
            [
                (Code::SessionRequired, false),
                (Code::Forbidden, false),
                (Code::Forbidden, true)
            ]
        );
    }
}

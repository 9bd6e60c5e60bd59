//! Sign-in with a link that is sent by email, `/v1/auth/email`, or with an OpenID Connect provider.
//! The operations require no credential.

use assay_core::model::audit::{Actor, AuditType, Change, RequestOrigin, TargetType};
use assay_core::model::auth::{PendingLink, SignInRequested, SignedIn};
use assay_core::model::event::EventType;
use assay_core::model::identity::Identity;
use assay_core::model::org::Role;
use assay_core::model::secret::{self, Secret, SecretHash, SecretKind};
use assay_core::model::session::Origin;
use assay_core::model::validation;
use assay_core::store::auth::{LINK_LIFETIME, Link, LinkMail};
use assay_core::store::identity::IdentifiedUser;
use assay_core::{Code, Error, Result, SessionId, UserId, store};
use url::Url;

use crate::app::App;
use crate::background::mail;
use crate::generated::inputs;
use crate::openid::{Callback, Flow};

/// Sends a sign-in link to an address. The response does not depend on whether the address is
/// known, has live links, or may sign up.
pub async fn request(
    app: &App,
    origin: Origin<'_>,
    input: inputs::RequestSignIn,
) -> Result<SignInRequested> {
    let email = validation::email("email", &input.email)?;
    let token = Secret::random(SecretKind::Link)?;
    let mut transaction = app.db.get().begin().await?;
    let may_sign_in = may_sign_in(app, &mut transaction, &email).await?;
    let Link { expires_at, mail } =
        store::auth::insert_link(&mut transaction, &email, &token.hash(), may_sign_in, origin)
            .await?;
    transaction.commit().await?;
    let next_at = match mail {
        LinkMail::None => return Ok(SignInRequested { email, expires_at }),
        LinkMail::Link => None,
        LinkMail::LastLink { next_at } => Some(next_at),
    };
    app.mailer.enqueue(mail::sign_in(
        &app.settings.public_url,
        &email,
        &token.into_text(),
        next_at,
    ));
    Ok(SignInRequested { email, expires_at })
}

/// Returns the domain of a normalized address.
fn domain(email: &str) -> &str {
    email.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// Exchanges the token of a link for a session, once. An invalid token counts as a failed
/// authentication of the network address in `origin`.
pub async fn verify(
    app: &App,
    origin: Origin<'_>,
    input: inputs::VerifySignIn,
) -> Result<SignedIn> {
    let token = input.token.as_str();
    validation::repeated_text("token", token)?;
    let _permit = app.limits.one_time_codes.look_up(origin.address).await?;
    let signed_in = match link_hash(token) {
        Some(link) => sign_in(app, &link, origin).await?,
        None => None,
    };
    match signed_in {
        Some(signed_in) => Ok(signed_in),
        None => Err(invalid_link(app, origin).await),
    }
}

/// Returns a link that works, without using it. An invalid token counts as in [`verify`].
pub async fn find_link(app: &App, origin: Origin<'_>, token: &str) -> Result<PendingLink> {
    let _permit = app.limits.one_time_codes.look_up(origin.address).await?;
    let link = match link_hash(token) {
        Some(link) => store::auth::find_link(&app.db.get(), &link).await?,
        None => None,
    };
    match link {
        Some(link) => Ok(link),
        None => Err(invalid_link(app, origin).await),
    }
}

/// Returns the hash of a link's token, or `None` if it is malformed.
fn link_hash(token: &str) -> Option<SecretHash> {
    let (kind, hash) = secret::read(token)?;
    (kind == SecretKind::Link).then_some(hash)
}

/// Counts a failed authentication of the client, and returns the error of an invalid link.
async fn invalid_link(app: &App, origin: Origin<'_>) -> Error {
    let invalid = Error::new(
        Code::InvalidToken,
        format!(
            "This link is not valid: it or another link of the address was used, or it is older \
             than {} minutes. Request a new one.",
            LINK_LIFETIME.as_secs() / 60
        ),
    );
    let (error, _) = app
        .limits
        .rate
        .record_failure(origin.address, invalid)
        .await;
    error
}

/// Uses the link, creates its user if necessary, and starts a session, in one transaction. Returns
/// `None`, and changes nothing, if the link is not valid.
async fn sign_in(app: &App, link: &SecretHash, origin: Origin<'_>) -> Result<Option<SignedIn>> {
    let mut transaction = app.db.get().begin().await?;
    let Some(email) = store::auth::use_link(&mut transaction, link).await? else {
        return Ok(None);
    };
    // The invite may have been revoked after the link was sent.
    if !may_sign_in(app, &mut transaction, &email).await? {
        return Ok(None);
    }
    let id = store::org::user(&mut transaction, &email, &UserId::random()?).await?;
    let user = IdentifiedUser { id, email };
    let signed_in = start_session(&mut transaction, user, AddressIs::Proven, origin).await?;
    transaction.commit().await?;
    Ok(Some(signed_in))
}

/// Starts a sign-in with the provider of this name. Returns the URL on which the user continues, and
/// what the browser keeps until it comes back; `None` if there is no such provider.
pub async fn start_with_provider(app: &App, name: &str) -> Result<Option<(Url, Flow)>> {
    app.sign_in_providers.start(name).await
}

/// Finishes a sign-in with a provider, and starts a session. An account that is new here is linked
/// to the user with its address, which the provider must have verified.
///
/// A callback that is not valid counts as a failed authentication of the network address in
/// `origin`.
pub async fn finish_with_provider(
    app: &App,
    origin: Origin<'_>,
    flow: Option<&Flow>,
    callback: &Callback,
) -> Result<SignedIn> {
    // Every attempt with a flow makes this process call the provider.
    if let Some((error, _)) = app.limits.rate.throttled(origin.address) {
        return Err(error);
    }
    let is_repeated = flow.is_some_and(|flow| {
        let state = SecretHash::of(&flow.state);
        flow.state == callback.state && !app.limits.one_time_codes.is_first_callback(state)
    });
    let found = match is_repeated {
        true => Err(Error::new(
            Code::InvalidToken,
            "This sign-in was finished before. Start again.",
        )),
        false => app.sign_in_providers.finish(flow, callback).await,
    };
    let identity = match found {
        Ok(identity) => identity,
        Err(error) if error.code == Code::InvalidToken => {
            let (error, _) = app.limits.rate.record_failure(origin.address, error).await;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    let mut transaction = app.db.get().begin().await?;
    let (user, notice) = match store::identity::user(&mut *transaction, &identity).await? {
        Some(user) => (user, None),
        None => {
            let user = link_identity(app, &mut transaction, &identity).await?;
            let notice =
                mail::account_linked(&app.settings.public_url, &user.email, &identity.issuer);
            (user, Some(notice))
        }
    };
    // The account of a provider stays the user's even if the address has got another owner.
    let address = match identity.verified_email.as_ref() == Some(&user.email) {
        true => AddressIs::Proven,
        false => AddressIs::Unproven,
    };
    let signed_in = start_session(&mut transaction, user, address, origin).await?;
    transaction.commit().await?;
    if let Some(notice) = notice {
        app.mailer.enqueue(notice);
    }
    Ok(signed_in)
}

/// Links an account to the user with its address, who is created if necessary.
async fn link_identity(
    app: &App,
    db: &mut store::PgConnection,
    identity: &Identity,
) -> Result<IdentifiedUser> {
    let Some(email) = &identity.verified_email else {
        let message = "The provider has not verified an email address of this account. Sign in \
                       with a link by email.";
        return Err(Error::new(Code::Forbidden, message));
    };
    if !may_sign_in(app, db, email).await? {
        let message = format!(
            "{email} has no account here and cannot sign up. Ask an owner of your organization for \
             an invite to this address."
        );
        return Err(Error::new(Code::Forbidden, message));
    }
    let user_id = store::org::user(db, email, &UserId::random()?).await?;
    store::identity::link(&mut *db, identity, &user_id).await?;
    // Another sign-in with the account may have linked it at the same time.
    let user = store::identity::user(&mut *db, identity).await?;
    user.ok_or_else(|| Error::internal("a linked account has no user"))
}

async fn may_sign_in(app: &App, db: &mut store::PgConnection, email: &str) -> Result<bool> {
    store::auth::may_sign_in(db, email, domain(email), app.settings.sign_up).await
}

/// The proof by a sign-in that the address is the user's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressIs {
    Proven,
    Unproven,
}

/// Starts a session of a user. If the address is proven, accepts the invites to it, and makes the
/// user a member of the organization that owns the domain, if it lets users join by domain.
async fn start_session(
    transaction: &mut store::PgConnection,
    user: IdentifiedUser,
    address: AddressIs,
    origin: Origin<'_>,
) -> Result<SignedIn> {
    let IdentifiedUser { id: user_id, email } = user;
    let token = Secret::random(SecretKind::Session)?;
    let session_id = SessionId::random()?;
    let request = RequestOrigin {
        request_id: origin.request_id.clone(),
        address: origin.address.into(),
    };
    let actor = Actor::user(user_id.clone(), Some(request));
    if address == AddressIs::Proven {
        join_orgs(transaction, &user_id, &email, &actor).await?;
    }
    // The session of a user with one organization keeps acting for it, even if the user is invited
    // to others later. Other users choose.
    let orgs = store::org::choices(&mut *transaction, &user_id).await?;
    let only_org = if let [only] = orgs.as_slice() {
        Some(&only.id)
    } else {
        None
    };
    let expires_at = store::org::insert_session(
        &mut *transaction,
        only_org,
        &session_id,
        &user_id,
        &token.hash(),
    )
    .await?;
    store::session::touch(&mut *transaction, &session_id, None, origin).await?;
    let started = Change::session(AuditType::SessionStarted, &session_id);
    let ended = store::session::end_excess(&mut *transaction, &user_id).await?;
    let ended = ended
        .iter()
        .map(|id| Change::session(AuditType::SessionEnded, id));
    let changes: Vec<_> = std::iter::once(started).chain(ended).collect();
    store::audit::record_in_orgs_of(&mut *transaction, &user_id, &actor, &changes).await?;
    Ok(SignedIn {
        token: token.into_text(),
        expires_at,
        user_id,
    })
}

/// Accepts the invites to an address, and makes its user a member of the organization that owns the
/// domain, if it lets users join by domain.
async fn join_orgs(
    db: &mut store::PgConnection,
    user_id: &UserId,
    email: &str,
    actor: &Actor,
) -> Result<()> {
    let domain = domain(email);
    let accepted = store::auth::accept_invites(db, email, domain, user_id).await?;
    for invite in accepted {
        let mut changes = vec![Change::new(
            AuditType::InviteAccepted,
            TargetType::Invite,
            invite.id,
        )];
        changes.extend(
            invite
                .is_new_member
                .then(|| Change::member_added(user_id, invite.role)),
        );
        store::audit::record(&mut *db, &invite.org_id, actor, &changes).await?;
        if invite.is_new_member {
            let event = EventType::MemberAdded;
            store::event::insert_member(&mut *db, &invite.org_id, event, user_id).await?;
        }
    }
    let joined = store::auth::join_by_domain(&mut *db, domain, user_id).await?;
    if let Some(org_id) = joined {
        let added = [Change::member_added(user_id, Role::Member)];
        store::audit::record(&mut *db, &org_id, actor, &added).await?;
        let event = EventType::MemberAdded;
        store::event::insert_member(&mut *db, &org_id, event, user_id).await?;
    }
    Ok(())
}

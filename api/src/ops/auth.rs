//! `/v1/auth/email`: signing in with a link that comes by e-mail. Whoever calls needs no credential.

use assay_core::model::auth::{SignInRequested, SignedIn};
use assay_core::model::secret::{self, Secret, SecretHash, SecretKind};
use assay_core::model::session::Origin;
use assay_core::model::validation;
use assay_core::store::auth::{Link, LinkMail};
use assay_core::{Code, Error, Result, SessionId, UserId, store};
use assay_eval::FieldError;

use crate::app::App;
use crate::background::mail;

/// Sends a link to an address. The response is the same whether or not the address is known, and whether or not its mailbox has
/// live links already, and whether or not it may sign up.
pub async fn request(app: &App, email: &str) -> Result<SignInRequested> {
    let email = validation::email("email", email)?;
    let token = Secret::random(SecretKind::Link)?;
    let mut transaction = app.db.begin().await?;
    let may_sign_in = store::auth::may_sign_in(
        &mut transaction,
        &email,
        domain(&email),
        app.settings.sign_up,
    )
    .await?;
    let Link { expires_at, mail } =
        store::auth::insert_link(&mut transaction, &email, &token.hash(), may_sign_in).await?;
    transaction.commit().await?;
    let next_at = match mail {
        LinkMail::None => return Ok(SignInRequested { email, expires_at }),
        LinkMail::Link => None,
        LinkMail::LastLink { next_at } => Some(next_at),
    };
    app.mailer.put(mail::sign_in(
        &app.settings.public_url,
        &email,
        &token.into_text(),
        next_at,
    ));
    Ok(SignInRequested { email, expires_at })
}

/// The domain of an address in its one form.
fn domain(email: &str) -> &str {
    email.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// Makes a session of a link, once. `origin` is the client's: a token that is not valid counts as a failed authentication of its
/// address.
pub async fn verify(app: &App, origin: Origin<'_>, token: &str) -> Result<SignedIn> {
    if token.is_empty() {
        return Err(FieldError::required("token").into());
    }
    let link =
        secret::read(token).and_then(|(kind, hash)| (kind == SecretKind::Link).then_some(hash));
    let signed_in = match link {
        Some(link) => sign_in(app, &link, origin).await?,
        None => None,
    };
    match signed_in {
        Some(signed_in) => Ok(signed_in),
        None => {
            let invalid = Error::new(
                Code::InvalidToken,
                "This link is not valid: it or a later one was used, or it is older than 15 minutes. Ask for another one.",
            );
            let (told, _) = app.limits.failed(origin.address, invalid).await;
            Err(told)
        }
    }
}

/// One transaction: the link is used up, and its person is known, is where they were invited, and has a session; or
/// nothing is.
async fn sign_in(app: &App, link: &SecretHash, origin: Origin<'_>) -> Result<Option<SignedIn>> {
    let token = Secret::random(SecretKind::Session)?;
    let session_id = SessionId::random()?;
    let mut transaction = app.db.begin().await?;
    let Some(email) = store::auth::use_link(&mut transaction, link).await? else {
        return Ok(None);
    };
    let domain = domain(&email);
    // The invite may have been revoked after the link was sent.
    if !store::auth::may_sign_in(&mut transaction, &email, domain, app.settings.sign_up).await? {
        return Ok(None);
    }
    let user_id = store::org::user(&mut transaction, &email, &UserId::random()?).await?;
    store::auth::accept_invites(&mut transaction, &email, domain, &user_id).await?;
    store::auth::join_by_domain(&mut transaction, domain, &user_id).await?;
    // The session of a user with one organization stays with it, also when the user is invited to others later. Others choose.
    let orgs = store::org::choices(&mut *transaction, &user_id).await?;
    let only = if let [only] = orgs.as_slice() {
        Some(&only.id)
    } else {
        None
    };
    let expires_at = store::org::insert_session(
        &mut *transaction,
        only,
        &session_id,
        &user_id,
        &token.hash(),
    )
    .await?;
    store::session::touch(&mut *transaction, &session_id, None, origin).await?;
    store::session::end_excess(&mut transaction, &user_id).await?;
    transaction.commit().await?;
    Ok(Some(SignedIn {
        token: token.into_text(),
        expires_at,
        user_id,
    }))
}

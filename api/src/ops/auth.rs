//! `/v1/auth/email`: signing in with a link that comes by e-mail. Whoever calls needs no credential.

use assay_core::auth::{SignInRequested, SignedIn};
use assay_core::secret::{self, Secret, SecretHash, SecretKind};
use assay_core::store::auth::Link;
use assay_core::{Code, Error, FieldError, Result, SessionId, UserId, field, store};

use crate::app::App;
use crate::mail;

/// Sends a link to an address. The answer is the same whether or not somebody there is known, and whether or not enough
/// mails went there already.
pub async fn request(app: &App, email: &str) -> Result<SignInRequested> {
    let email = field::email("email", email)?;
    let token = Secret::random(SecretKind::Link)?;
    let mut transaction = app.db.begin().await?;
    let Link { expires_at, made } = store::auth::insert_link(&mut transaction, &email, &token.hash()).await?;
    transaction.commit().await?;
    if made {
        app.post.put(mail::sign_in(&app.settings.public_url, &email, &token.into_text()));
    }
    Ok(SignInRequested { email, expires_at })
}

/// Makes a session of a link, once. `address` is the client's: a token that does not hold counts as a failed
/// authentication.
pub async fn verify(app: &App, address: &str, token: &str) -> Result<SignedIn> {
    if token.is_empty() {
        return Err(FieldError::required("token").into());
    }
    let link = secret::read(token).and_then(|(kind, hash)| (kind == SecretKind::Link).then_some(hash));
    let signed_in = match link {
        Some(link) => sign_in(app, &link).await?,
        None => None,
    };
    match signed_in {
        Some(signed_in) => Ok(signed_in),
        None => {
            let invalid =
                Error::new(Code::InvalidToken, "This link is not valid: it was used, or is older than 15 minutes. Ask for another one.");
            let (told, _) = app.limits.failed(address, invalid).await;
            Err(told)
        }
    }
}

/// One transaction: the link is used up, and its person is known, is where they were invited, and has a session; or
/// nothing is.
async fn sign_in(app: &App, link: &SecretHash) -> Result<Option<SignedIn>> {
    let token = Secret::random(SecretKind::Session)?;
    let session_id = SessionId::random()?;
    let mut transaction = app.db.begin().await?;
    let Some(email) = store::auth::use_link(&mut transaction, link).await? else { return Ok(None) };
    let user_id = store::org::user(&mut transaction, &email, &UserId::random()?).await?;
    store::auth::accept_invites(&mut transaction, &email, &user_id).await?;
    if let Some((_, domain)) = email.rsplit_once('@') {
        store::auth::join_by_domain(&mut transaction, domain, &user_id).await?;
    }
    // It begins in the organization of the oldest membership; of somebody who had none that is one that they just joined.
    let expires_at = store::org::insert_session(&mut *transaction, None, &session_id, &user_id, &token.hash()).await?;
    transaction.commit().await?;
    Ok(Some(SignedIn { token: token.into_text(), expires_at, user_id }))
}

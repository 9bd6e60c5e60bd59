//! Sessions of the caller: `/v1/session` and `/v1/sessions`.

use assay_core::model::permissions::User;
use assay_core::model::session::Sessions;
use assay_core::{Error, Resource, Result, SessionId, store};

use crate::app::App;

/// Returns the live sessions of the caller.
pub async fn list(app: &App, user: &User) -> Result<Sessions> {
    Ok(Sessions {
        sessions: store::session::list(&app.db.get(), user.user_id(), user.session_id()).await?,
    })
}

/// Ends the session that calls, at once and in all processes.
pub async fn end_current(app: &App, user: &User) -> Result<()> {
    store::session::end(&app.db.get(), user.user_id(), user.session_id())
        .await
        .map(drop)
}

/// Ends a session of the caller, at once and in all processes. Ending it again changes nothing.
pub async fn end(app: &App, user: &User, session_id: &str) -> Result<()> {
    let not_found = || Error::not_found(Resource::Session);
    let session_id: SessionId = session_id.parse().map_err(|_| not_found())?;
    if store::session::end(&app.db.get(), user.user_id(), &session_id).await? {
        Ok(())
    } else {
        Err(not_found())
    }
}

/// Ends all sessions of the caller except the one that calls, at once and in all processes.
pub async fn end_others(app: &App, user: &User) -> Result<()> {
    store::session::end_others(&app.db.get(), user.user_id(), user.session_id()).await
}

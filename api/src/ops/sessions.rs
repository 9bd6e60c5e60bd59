//! `/v1/session` and `/v1/sessions`

use assay_core::model::permissions::Person;
use assay_core::model::session::Sessions;
use assay_core::{Error, Resource, Result, SessionId, store};

use crate::app::App;

/// The live sessions of the caller.
pub async fn list(app: &App, person: &Person) -> Result<Sessions> {
    Ok(Sessions {
        sessions: store::session::list(&app.db, person.user_id(), person.session_id()).await?,
    })
}

/// Ends the session that calls, everywhere at once.
pub async fn end_current(app: &App, person: &Person) -> Result<()> {
    store::session::end(&app.db, person.user_id(), person.session_id())
        .await
        .map(drop)
}

/// Ends a session of the caller, everywhere at once. Doing it again changes nothing.
pub async fn end(app: &App, person: &Person, session_id: &str) -> Result<()> {
    let missing = || Error::not_found(Resource::Session);
    let session_id: SessionId = session_id.parse().map_err(|_| missing())?;
    if store::session::end(&app.db, person.user_id(), &session_id).await? {
        Ok(())
    } else {
        Err(missing())
    }
}

/// Ends all sessions of the caller but the one that calls, everywhere at once.
pub async fn end_others(app: &App, person: &Person) -> Result<()> {
    store::session::end_others(&app.db, person.user_id(), person.session_id()).await
}

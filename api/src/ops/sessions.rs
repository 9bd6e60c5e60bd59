//! Sessions of the caller: `/v1/session` and `/v1/sessions`.

use std::slice;

use assay_core::model::audit::{AuditType, Change};
use assay_core::model::permissions::User;
use assay_core::model::session::Sessions;
use assay_core::store::PgConnection;
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
    end_one(app, user, user.session_id()).await.map(drop)
}

/// Ends a session of the caller, at once and in all processes. Ending it again changes nothing.
pub async fn end(app: &App, user: &User, session_id: &str) -> Result<()> {
    let not_found = || Error::not_found(Resource::Session);
    let session_id: SessionId = session_id.parse().map_err(|_| not_found())?;
    end_one(app, user, &session_id)
        .await?
        .ok_or_else(not_found)
        .map(drop)
}

/// Ends a session of the caller. Returns whether this call ended it, or `None` if the caller has no
/// such session.
async fn end_one(app: &App, user: &User, session_id: &SessionId) -> Result<Option<bool>> {
    let mut transaction = app.db.get().begin().await?;
    let ended = store::session::end(&mut *transaction, user.user_id(), session_id).await?;
    if ended == Some(true) {
        record(&mut transaction, user, slice::from_ref(session_id)).await?;
    }
    transaction.commit().await?;
    Ok(ended)
}

/// Ends all sessions of the caller except the one that calls, at once and in all processes.
pub async fn end_others(app: &App, user: &User) -> Result<()> {
    let (user_id, kept) = (user.user_id(), user.session_id());
    let mut transaction = app.db.get().begin().await?;
    let ended = store::session::end_others(&mut *transaction, user_id, kept).await?;
    record(&mut transaction, user, &ended).await?;
    transaction.commit().await?;
    Ok(())
}

/// Records the end of sessions of the caller.
async fn record(db: &mut PgConnection, user: &User, ended: &[SessionId]) -> Result<()> {
    let changes = ended.iter();
    let changes: Vec<_> = changes
        .map(|id| Change::session(AuditType::SessionEnded, id))
        .collect();
    store::audit::record_in_orgs_of(db, user.user_id(), user.actor(), &changes).await
}

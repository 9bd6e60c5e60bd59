//! `/v1/session`

use assay_core::principal::Person;
use assay_core::{Result, store};

use crate::app::App;

/// Ends the session that calls, everywhere at once.
pub async fn end(app: &App, person: &Person) -> Result<()> {
    store::org::end_session(&app.db, person.session_id()).await
}

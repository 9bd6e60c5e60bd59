//! The account of a signed-in user.

use assay_core::model::identity::LinkedAccount;
use assay_core::model::mail_preferences::MailPreferences;
use assay_core::model::org::Org;
use assay_core::model::permissions::User;
use assay_core::{Result, store};

use crate::app::App;

/// A user with their organizations.
#[derive(Debug, Clone)]
pub struct Account {
    /// The verified address.
    pub email: String,
    /// The organizations of the user, with their role in each.
    pub orgs: Vec<Org>,
}

/// Returns the account of the caller.
pub async fn get(app: &App, user: &User) -> Result<Account> {
    let mut db = app.db.get().acquire().await?;
    let email = store::org::email(&mut *db, user.user_id()).await?;
    let orgs = store::org::for_user(&mut *db, user.user_id()).await?;
    Ok(Account { email, orgs })
}

/// Returns the emails that the caller has turned on.
pub async fn mail_preferences(app: &App, user: &User) -> Result<MailPreferences> {
    store::mail_preferences::get(&app.db.get(), user.user_id()).await
}

/// Stores the emails that the caller turns on. Only later events are reported.
pub async fn set_mail_preferences(
    app: &App,
    user: &User,
    preferences: MailPreferences,
) -> Result<()> {
    store::mail_preferences::set(&app.db.get(), user.user_id(), preferences).await
}

/// Returns the accounts of providers that sign the caller in.
pub async fn linked_accounts(app: &App, user: &User) -> Result<Vec<LinkedAccount>> {
    store::identity::for_user(&app.db.get(), user.user_id()).await
}

/// Removes an account of a provider, which then no longer signs the caller in. Its sessions go on.
/// Idempotent.
pub async fn unlink_account(app: &App, user: &User, issuer: &str, subject: &str) -> Result<()> {
    store::identity::unlink(&app.db.get(), user.user_id(), issuer, subject).await
}

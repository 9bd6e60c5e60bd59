//! `/v1/orgs`

use assay_core::model::auth::SignUp;
use assay_core::model::org::{CREATED_MAX, DataUse, FREE, Org, Role};
use assay_core::model::permissions::{Owner, Person};
use assay_core::model::validation;
use assay_core::{Code, Error, OrgId, Resource, Result, store};

use crate::app::App;

/// Makes an organization with the caller as its owner. Where sign-up is not open, the caller must own one already.
pub async fn create(app: &App, person: &Person, name: &str) -> Result<Org> {
    if app.settings.sign_up != SignUp::Open
        && !store::org::owns_any(&app.db, person.user_id()).await?
    {
        return Err(Error::new(
            Code::Forbidden,
            "The operator of this installation creates organizations. Ask the operator for one.",
        ));
    }
    let name = validation::org_name("name", name)?;
    let org_id = OrgId::random()?;
    let mut transaction = app.db.begin().await?;
    let created = store::org::lock_created(&mut transaction, person.user_id()).await?;
    if created >= CREATED_MAX {
        let message = format!(
            "You have created {created} organizations, whoever owns them now; a user may create {CREATED_MAX}. Ask the operator for more."
        );
        return Err(Error::invalid_state(Resource::Organization, message));
    }
    let org = store::org::insert(
        &mut *transaction,
        &org_id,
        &name,
        FREE,
        Some(person.user_id()),
    )
    .await?;
    store::org::add_member(&mut *transaction, &org_id, person.user_id(), Role::Owner).await?;
    transaction.commit().await?;
    Ok(org)
}

/// JobUpdates the organization that the session acts for. What is not given stays.
pub async fn update(
    app: &App,
    owner: &Owner,
    org_id: &str,
    name: Option<&str>,
    data_use: Option<&str>,
) -> Result<Org> {
    let mut faults = Vec::new();
    let new_name = validation::ok_or_collect(
        &mut faults,
        name.map(|name| validation::org_name("name", name))
            .transpose(),
    );
    let new_use: Option<DataUse> = validation::ok_or_collect(
        &mut faults,
        data_use
            .map(|text| validation::one_of("data_use", text))
            .transpose(),
    );
    if !faults.is_empty() {
        return Err(Error::fields(faults));
    }
    if name.is_none() && data_use.is_none() {
        return Err(Error::field(
            "body",
            "required",
            "give at least one of name and data_use",
        ));
    }
    let own = owner.session().org_id();
    let missing = || {
        Error::missing(
            Resource::Organization,
            "No such organization, or not the one that this session acts for: name it in the header X-Org-Id.",
        )
    };
    if org_id != own.as_str() {
        return Err(missing());
    }
    store::org::update(&app.db, own, new_name.as_deref(), new_use)
        .await?
        .ok_or_else(missing)
}

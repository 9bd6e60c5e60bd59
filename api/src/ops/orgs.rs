//! Organizations: `/v1/orgs`.

use assay_core::model::audit::{AuditType, Change, TargetType};
use assay_core::model::auth::SignUp;
use assay_core::model::error::Errors;
use assay_core::model::event::EventType;
use assay_core::model::org::{CREATED_MAX, DataUse, FREE, Org, Role};
use assay_core::model::permissions::{Owner, User};
use assay_core::model::public_name::name_without_link;
use assay_core::model::validation;
use assay_core::{Code, Error, OrgId, Resource, Result, store};

use crate::app::App;
use crate::generated::inputs;

/// Creates an organization with the caller as its owner. If sign-up is not open, only users who own
/// an organization can create one.
pub async fn create(app: &App, user: &User, input: inputs::CreateOrg) -> Result<Org> {
    if app.settings.sign_up != SignUp::Open
        && !store::org::owns_any(&app.db.get(), user.user_id()).await?
    {
        return Err(Error::new(
            Code::Forbidden,
            "The operator of this installation creates organizations. Ask the operator for one.",
        ));
    }
    let name = name_without_link("name", &input.name)?;
    let org_id = OrgId::random()?;
    let mut transaction = app.db.get().begin().await?;
    let created = store::org::lock_created(&mut transaction, user.user_id()).await?;
    if created >= CREATED_MAX {
        let message = format!(
            "You have created {created} organizations, including those that others own now; a user \
             may create {CREATED_MAX}. Ask the operator for more."
        );
        return Err(Error::invalid_state(Resource::Organization, message));
    }
    let org = store::org::insert(
        &mut *transaction,
        &org_id,
        &name,
        FREE,
        Some(user.user_id()),
    )
    .await?;
    store::org::add_member(&mut *transaction, &org_id, user.user_id(), Role::Owner).await?;
    let added = Change::member_added(user.user_id(), Role::Owner);
    store::audit::record(&mut transaction, &org_id, user.actor(), &[added]).await?;
    let event = EventType::MemberAdded;
    store::event::insert_member(&mut transaction, &org_id, event, user.user_id()).await?;
    transaction.commit().await?;
    Ok(org)
}

/// Updates the organization that the session acts for. Absent fields remain unchanged.
pub async fn update(
    app: &App,
    owner: &Owner,
    org_id: &str,
    input: inputs::UpdateOrg,
) -> Result<Org> {
    let (name, data_use) = (input.name.as_deref(), input.data_use.as_deref());
    let mut errors = Errors::default();
    let new_name = errors.take(name.map(|name| name_without_link("name", name)).transpose());
    let new_use: Option<DataUse> = errors.take(
        data_use
            .map(|text| validation::one_of("data_use", text))
            .transpose(),
    );
    errors.finish()?;
    if name.is_none() && data_use.is_none() {
        return Err(Error::field(
            "body",
            "required",
            "give at least one of name and data_use",
        ));
    }
    let own = owner.session().org_id();
    let not_found = || {
        Error::not_found_with(
            Resource::Organization,
            "No such organization, or not the one that this session acts for: name it in the \
             header X-Org-Id.",
        )
    };
    if org_id != own.as_str() {
        return Err(not_found());
    }
    let mut transaction = app.db.get().begin().await?;
    let before = store::org::lock_settings(&mut *transaction, own)
        .await?
        .ok_or_else(not_found)?;
    let org = store::org::update(&mut *transaction, own, new_name.as_deref(), new_use)
        .await?
        .ok_or_else(not_found)?;
    let updated = Change::new(
        AuditType::OrgUpdated,
        TargetType::Organization,
        own.as_str(),
    )
    .field("name", &before.name, &org.name)
    .field("data_use", before.data_use, org.data_use);
    if !updated.fields.is_empty() {
        let actor = owner.session().actor();
        store::audit::record(&mut transaction, own, actor, &[updated]).await?;
    }
    transaction.commit().await?;
    Ok(org)
}

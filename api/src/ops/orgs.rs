//! Organizations: `/v1/orgs`.

use assay_core::model::audit::{AuditType, Change, TargetType};
use assay_core::model::auth::SignUp;
use assay_core::model::error::Errors;
use assay_core::model::event::EventType;
use assay_core::model::handle;
use assay_core::model::org::{CREATED_MAX, DataUse, FREE, Org, Role};
use assay_core::model::permissions::{Owner, User};
use assay_core::model::public_name::name_without_link;
use assay_core::model::validation;
use assay_core::store::{self, PgConnection};
use assay_core::{Code, Error, OrgId, Resource, Result};

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
    let inputs::UpdateOrg {
        name,
        data_use,
        handle,
    } = &input;
    let (name, data_use, handle) = (name.as_deref(), data_use.as_deref(), handle.as_deref());
    let mut errors = Errors::default();
    let new_name = errors.take(name.map(|name| name_without_link("name", name)).transpose());
    let new_use: Option<DataUse> = errors.take(
        data_use
            .map(|text| validation::one_of("data_use", text))
            .transpose(),
    );
    let reserved = &app.settings.reserved_handles;
    let handle = handle.map(|text| handle::choose("handle", text, reserved));
    let handle: Option<&str> = errors.take(handle.transpose());
    errors.finish()?;
    if name.is_none() && data_use.is_none() && handle.is_none() {
        return Err(Error::field(
            "body",
            "required",
            "give at least one of name, data_use and handle",
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
    match (handle, before.handle.as_deref()) {
        (Some(handle), None) => ensure_free(&mut transaction, own, handle).await?,
        (Some(handle), Some(set)) if handle != set => return Err(Error::handle_set(set)),
        (None | Some(_), _) => {}
    }
    let org = store::org::update(&mut *transaction, own, new_name.as_deref(), new_use, handle)
        .await?
        .ok_or_else(not_found)?;
    let updated = Change::new(
        AuditType::OrgUpdated,
        TargetType::Organization,
        own.as_str(),
    )
    .field("name", &before.name, &org.name)
    .field("data_use", before.data_use, org.data_use)
    .field("handle", &before.handle, &org.handle);
    if !updated.fields.is_empty() {
        let actor = owner.session().actor();
        store::audit::record(&mut transaction, own, actor, &[updated]).await?;
    }
    transaction.commit().await?;
    Ok(org)
}

/// Returns an error if the organization cannot have the handle. Until the transaction ends, nobody else
/// takes it.
async fn ensure_free(db: &mut PgConnection, org_id: &OrgId, handle: &str) -> Result<()> {
    store::org::lock_handle(db, handle).await?;
    let is_taken = store::org::is_handle(&mut *db, handle).await?
        || store::org::is_in_operator_suite(&mut *db, handle).await?;
    let mut holders = store::org::domains_with_label(&mut *db, handle).await?;
    holders.retain(|(_, domain)| handle::is_reserved_by(handle, domain));
    let is_reserved = !holders.is_empty() && holders.iter().all(|(holder, _)| holder != org_id);
    if is_taken || is_reserved {
        return Err(Error::handle_taken(handle));
    }
    Ok(())
}

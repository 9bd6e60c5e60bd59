//! Members of an organization: `/v1/members`.

use assay_core::model::audit::{AuditType, Change, TargetType};
use assay_core::model::cursor::Listing;
use assay_core::model::event::EventType;
use assay_core::model::member::{Member, Members};
use assay_core::model::org::Role;
use assay_core::model::permissions::{Owner, Session};
use assay_core::model::validation;
use assay_core::store::PgConnection;
use assay_core::{Error, OrgId, Resource, Result, UserId, store};
use assay_eval::FieldError;

use crate::app::App;
use crate::generated::inputs;

fn not_found() -> Error {
    Error::not_found(Resource::Member)
}

/// Returns a page of the members of the organization, the longest membership first.
pub async fn list(app: &App, session: &Session, input: inputs::ListMembers) -> Result<Members> {
    let page = Listing::Members.page(input.limit, input.cursor.as_deref())?;
    let mut members = store::member::list(&app.db.get(), session.org_id(), &page).await?;
    let next_cursor = page.cut(&mut members, |member| {
        (member.created_at, member.user_id.to_string())
    });
    Ok(Members {
        members,
        next_cursor,
    })
}

/// Changes the role of a member. A member who is no longer an owner loses the open invites that
/// they created, and those to their address.
pub async fn set_role(
    app: &App,
    owner: &Owner,
    user_id: &str,
    input: inputs::UpdateMember,
) -> Result<Member> {
    let role: Role = match input.role.as_str() {
        "" => return Err(FieldError::required("role").into()),
        role => validation::one_of("role", role)?,
    };
    let user_id: UserId = user_id.parse().map_err(|_| not_found())?;
    let org_id = owner.session().org_id();
    let mut transaction = app.db.get().begin().await?;
    if role != Role::Owner {
        ensure_owner_remains(&mut transaction, org_id, &user_id).await?;
    }
    let before = store::member::lock_role(&mut transaction, org_id, &user_id)
        .await?
        .ok_or_else(not_found)?;
    let member = store::member::set_role(&mut transaction, org_id, &user_id, role)
        .await?
        .ok_or_else(not_found)?;
    let mut changes = Vec::new();
    if before != role {
        let changed = Change::new(
            AuditType::MemberRoleChanged,
            TargetType::Member,
            user_id.as_str(),
        );
        changes.push(changed.field("role", before, role));
    }
    if role != Role::Owner {
        changes.extend(revoke_invites(&mut transaction, org_id, &user_id).await?);
    }
    store::audit::record(&mut transaction, org_id, owner.session().actor(), &changes).await?;
    if before != role {
        let event = EventType::MemberRoleChanged;
        store::event::insert(&mut transaction, org_id, event, &member).await?;
    }
    transaction.commit().await?;
    Ok(member)
}

/// Returns a member of the organization.
pub async fn get(app: &App, session: &Session, user_id: &str) -> Result<Member> {
    let user_id: UserId = user_id.parse().map_err(|_| not_found())?;
    let member = store::member::find(&app.db.get(), session.org_id(), &user_id).await?;
    member.ok_or_else(not_found)
}

/// Ends a membership, and revokes the open invites by which the member could return. API keys that
/// the member created keep working until they are revoked.
pub async fn remove(app: &App, owner: &Owner, user_id: &str) -> Result<()> {
    let user_id: UserId = user_id.parse().map_err(|_| not_found())?;
    let org_id = owner.session().org_id();
    let mut transaction = app.db.get().begin().await?;
    ensure_owner_remains(&mut transaction, org_id, &user_id).await?;
    let event = EventType::MemberRemoved;
    store::event::insert_member(&mut transaction, org_id, event, &user_id).await?;
    let role = store::member::remove(&mut transaction, org_id, &user_id)
        .await?
        .ok_or_else(not_found)?;
    let removed = Change::new(
        AuditType::MemberRemoved,
        TargetType::Member,
        user_id.as_str(),
    );
    let mut changes = vec![removed.field("role", role, ())];
    changes.extend(revoke_invites(&mut transaction, org_id, &user_id).await?);
    store::audit::record(&mut transaction, org_id, owner.session().actor(), &changes).await?;
    transaction.commit().await?;
    Ok(())
}

/// Revokes the open invites by which a member could return, and returns the changes.
async fn revoke_invites(
    db: &mut PgConnection,
    org_id: &OrgId,
    user_id: &UserId,
) -> Result<Vec<Change>> {
    let revoked = store::invite::revoke_of_member(db, org_id, user_id).await?;
    let changes = revoked.into_iter().map(|(invite_id, revoked_at)| {
        Change::new(AuditType::InviteRevoked, TargetType::Invite, invite_id).field(
            "revoked_at",
            (),
            revoked_at,
        )
    });
    Ok(changes.collect())
}

/// Locks the owners of the organization until the transaction ends.
///
/// # Errors
/// If `leaving` is the last owner.
async fn ensure_owner_remains(
    db: &mut PgConnection,
    org_id: &OrgId,
    leaving: &UserId,
) -> Result<()> {
    match store::member::lock_owners(db, org_id).await?.as_slice() {
        [only] if only == leaving => Err(Error::invalid_state(
            Resource::Member,
            "The member is the last owner. Make another member an owner first.",
        )),
        _ => Ok(()),
    }
}

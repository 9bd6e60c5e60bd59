//! Invites to an organization: `/v1/invites`.

use assay_core::model::audit::{AuditType, Change, TargetType};
use assay_core::model::cursor::Listing;
use assay_core::model::error::Errors;
use assay_core::model::invite::{Invite, Invites, OPEN_MAX};
use assay_core::model::org::Role;
use assay_core::model::permissions::Owner;
use assay_core::model::validation;
use assay_core::store::invite::{DailyInvites, NewInvite};
use assay_core::{Code, Details, Error, InviteId, Resource, Result, store};

use crate::app::App;
use crate::background::mail;
use crate::generated::inputs;

/// Returns a page of the invites of the organization, the newest first.
pub async fn list(app: &App, owner: &Owner, input: inputs::ListInvites) -> Result<Invites> {
    let page = Listing::Invites.page(input.limit, input.cursor.as_deref())?;
    let mut invites = store::invite::list(&app.db.get(), owner.session().org_id(), &page).await?;
    let next_cursor = page.cut(&mut invites, |invite| {
        (invite.created_at, invite.id.to_string())
    });
    Ok(Invites {
        invites,
        next_cursor,
    })
}

/// Creates an invite, and sends an email to the address unless it has received too many. The user
/// becomes a member when they sign in.
pub async fn create(app: &App, owner: &Owner, input: inputs::CreateInvite) -> Result<Invite> {
    let inputs::CreateInvite { email, role } = input;
    let mut errors = Errors::default();
    let email = errors.take(validation::email("email", &email));
    let role: Option<Role> = errors.take(
        role.map(|role| validation::one_of("role", &role))
            .transpose(),
    );
    errors.finish()?;
    let session = owner.session();
    let new = NewInvite {
        id: &InviteId::random()?,
        email: &email,
        role: role.unwrap_or(Role::Member),
        invited_by: session.user_id(),
    };
    let mut transaction = app.db.get().begin().await?;
    if !store::member::lock_owner(&mut transaction, session.org_id(), session.user_id()).await? {
        return Err(Error::new(
            Code::Forbidden,
            "You are no longer an owner of this organization.",
        ));
    }
    if store::invite::is_member(&mut *transaction, session.org_id(), &email).await? {
        return Err(Error::new(
            Code::Conflict,
            format!("{email} is already a member."),
        ));
    }
    if store::invite::lock_open(&mut transaction, session.org_id()).await? >= OPEN_MAX {
        let message = format!(
            "The organization has {OPEN_MAX} open invites, the maximum. Revoke some, or wait until \
             they are accepted."
        );
        return Err(Error::new(Code::Conflict, message));
    }
    let DailyInvites {
        max,
        used,
        resets_at,
        seconds,
    } = store::invite::lock_daily(&mut transaction, session.org_id()).await?;
    let invite = store::invite::insert(&mut transaction, session.org_id(), &new).await?;
    let invite = invite.ok_or_else(|| {
        Error::new(
            Code::Conflict,
            format!("{email} is already invited. Revoke that invite to create another one."),
        )
    })?;
    // This check follows those for conflicts, which the caller can resolve. The error rolls the new
    // invite back.
    if used >= max {
        let details = Details::Quota {
            limit: "invites_per_day",
            max,
            active: None,
            resets_at,
        };
        let message = format!(
            "{max} invites were created in the last 24 hours. Wait, verify a domain, or ask the \
             operator for another plan."
        );
        return Err(Error::quota(message, details, seconds.unsigned_abs()));
    }
    let created = Change::new(
        AuditType::InviteCreated,
        TargetType::Invite,
        invite.id.as_str(),
    )
    .field("email", (), &invite.email)
    .field("role", (), invite.role);
    store::audit::record(
        &mut transaction,
        session.org_id(),
        session.actor(),
        &[created],
    )
    .await?;
    let sends = store::auth::count_notice(&mut *transaction, &email).await?;
    let org = store::org::name(&mut *transaction, session.org_id()).await?;
    let inviter = store::org::email(&mut *transaction, session.user_id()).await?;
    transaction.commit().await?;
    if sends {
        app.mailer.enqueue(mail::invite(
            &app.settings.public_url,
            &email,
            &org,
            &inviter,
            invite.role.as_str(),
        ));
    }
    Ok(invite)
}

/// Revokes an invite. Revoking it again changes nothing.
pub async fn revoke(app: &App, owner: &Owner, invite_id: &str) -> Result<Invite> {
    let not_found = || Error::not_found(Resource::Invite);
    let invite_id: InviteId = invite_id.parse().map_err(|_| not_found())?;
    let session = owner.session();
    let org_id = session.org_id();
    let mut transaction = app.db.get().begin().await?;
    let was_revoked = store::invite::lock_revoked(&mut transaction, org_id, &invite_id)
        .await?
        .ok_or_else(not_found)?;
    let revoked = store::invite::revoke(&mut *transaction, org_id, &invite_id).await?;
    let Some(invite) = revoked else {
        return Err(Error::not_found_with(
            Resource::Invite,
            "This invite was already accepted. To end the membership, remove the member.",
        ));
    };
    if !was_revoked {
        let revoked = Change::new(
            AuditType::InviteRevoked,
            TargetType::Invite,
            invite.id.as_str(),
        )
        .field("revoked_at", (), invite.revoked_at);
        store::audit::record(&mut transaction, org_id, session.actor(), &[revoked]).await?;
    }
    transaction.commit().await?;
    Ok(invite)
}

//! Events of an organization: `/v1/events`.

use std::time::Duration;

use assay_core::model::cursor::PAGE;
use assay_core::model::error::Errors;
use assay_core::model::event::{EventCursor, EventType, Events};
use assay_core::model::permissions::{Caller, Principal};
use assay_core::model::scope::{Scope, Scopes};
use assay_core::model::validation;
use assay_core::{Code, Error, Result, store};
use assay_eval::FieldError;
use tokio::time::Instant;

use crate::app::App;
use crate::background::event_data::render;
use crate::generated::inputs;
use crate::limits::request_memory::Reservation;
use crate::ops::jobs::{WAIT_MAX, current_scopes};

/// Time after which events are read again that a notification has announced, but that are not shown
/// yet, because an earlier transaction is open.
const REREAD_DELAY: Duration = Duration::from_millis(50);

/// Memory that each byte on a page takes, in bytes: the rows, the resources, their JSON objects and the
/// body.
const EVENT_BYTE_COST: u64 = 5;

/// Longest time between a notification and the reading of its event.
const REREAD_DELAY_MAX: Duration = Duration::from_secs(1);

/// Returns a page of the events that the caller may see, the oldest first. With `wait`, an empty
/// page is returned only after that many seconds. A page is charged to `room` before its data is read.
pub async fn list(
    app: &App,
    caller: &Caller,
    input: inputs::ListEvents,
    room: &Reservation,
) -> Result<Events> {
    let inputs::ListEvents {
        r#type,
        limit,
        cursor,
        wait,
    } = input;
    let mut errors = Errors::default();
    let r#type = r#type.map(|text| validation::one_of("type", &text));
    let r#type: Option<EventType> = errors.take(r#type.transpose());
    let limit = errors.take(validation::limit(limit, PAGE.0, PAGE.1));
    let cursor = cursor.map(|text| {
        let malformed = || {
            let message = "must be the next_cursor of a page of events";
            FieldError::new("cursor", "format", message)
        };
        EventCursor::parse(&text).ok_or_else(malformed)
    });
    let after = errors.take(cursor.transpose()).unwrap_or_default();
    let wait = wait.unwrap_or(0);
    if !(0..=WAIT_MAX).contains(&wait) {
        let message = format!("must be an integer from 0 to {WAIT_MAX}, in seconds");
        errors.push(FieldError::new("wait", "range", message));
    }
    errors.finish()?;
    let scopes = match caller.principal() {
        Principal::ApiKey { scopes, .. } => scopes.clone(),
        Principal::Session { .. } => Scopes::All,
    };
    let visible = |scopes: &Scopes| -> Vec<EventType> {
        let all = EventType::ALL.iter().copied();
        all.filter(|one| r#type.is_none_or(|wanted| wanted == *one) && may_see(scopes, *one))
            .collect()
    };
    if let Some(r#type) = r#type.filter(|one| !may_see(&scopes, *one)) {
        return Err(hidden(r#type));
    }
    let org_id = caller.org_id();
    let deadline = Instant::now() + Duration::from_secs(wait.unsigned_abs());
    let _permit = match wait {
        0 => None,
        _ => Some(app.concurrency.event_waits.acquire(org_id.as_str()).await?),
    };
    let mut subscription = (wait > 0).then(|| app.jobs.updates.subscribe_to_org(org_id));
    let mut types = visible(&scopes);
    let mut position = after;
    let mut delay = REREAD_DELAY;
    loop {
        let db = app.db.jobs.get();
        let page = store::event::list(&db, org_id, &types, position, i64::from(limit)).await?;
        if position > page.horizon || (1..page.restored).contains(&position.xid) {
            let message = "is from before the database was restored; begin without a cursor";
            return Err(Error::field("cursor", "not_available", message));
        }
        let is_empty = page.rows.is_empty();
        room.reserve_response_of(page.bytes * EVENT_BYTE_COST)
            .await?;
        position = page.next;
        let events = render(app, org_id, page.rows).await?;
        // All events of a page can be about jobs that no longer exist.
        if !events.is_empty() || (is_empty && Instant::now() >= deadline) {
            return Ok(Events {
                events,
                next_cursor: position,
            });
        }
        if !is_empty {
            continue;
        }
        // An event wakes up all requests of the organization, also those that wait for another type.
        // The longer a request waits, the rarer it reads.
        if let Some(subscription) = &mut subscription
            && subscription.finished_before(deadline).await
        {
            tokio::time::sleep_until(deadline.min(Instant::now() + delay)).await;
            delay = (delay * 2).min(REREAD_DELAY_MAX);
        }
        types = visible(&current_scopes(app, caller).await?);
    }
}

/// Returns `true` if a caller with these scopes may see events of this type.
fn may_see(scopes: &Scopes, r#type: EventType) -> bool {
    match r#type.scope() {
        Some(scope) => scopes.contains(scope),
        None => Scope::ALL.iter().all(|scope| scopes.contains(*scope)),
    }
}

/// Returns the error of a caller that asks for a type that it may not see.
fn hidden(r#type: EventType) -> Error {
    match r#type.scope() {
        Some(scope) => Error::out_of_scope(scope),
        None => {
            let message = format!(
                "Events of the type {type} require a session token, or a key with all scopes."
            );
            Error::new(Code::SessionRequired, message)
        }
    }
}

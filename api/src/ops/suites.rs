//! Suites and their items: `/v1/suites`.

use assay_core::model::cursor::{Listing, bad_cursor};
use assay_core::model::handle;
use assay_core::model::permissions::{SuiteReader, SuiteVisitor};
use assay_core::model::suite::{SUITES_PAGE, Suite, SuiteId, SuiteVersions, Suites, VERSIONS_MAX};
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor, SuiteItems};
use assay_core::model::validation;
use assay_core::{Code, Error, OrgId, Resource, Result, Timestamp, store};

use crate::app::App;
use crate::generated::inputs;
use crate::limits::request_memory::Reservation;

/// Maximum size of a page of suites, in bytes of JSON: many gRPC clients accept 4 MiB.
const LIST_BYTES_MAX: u32 = 3 * 1024 * 1024;

/// The value of `owner` that stands for the organization of the caller.
const ME: &str = "me";

/// Returns a page of the suites that the organization sees, by id, each in its current version.
///
/// Its memory is charged to `room` before it is read.
pub async fn list(
    app: &App,
    reader: &SuiteReader,
    input: inputs::ListSuites,
    room: &Reservation,
) -> Result<Suites> {
    let inputs::ListSuites {
        owner,
        limit,
        cursor,
    } = input;
    let page = Listing::Suites.page_within(SUITES_PAGE, limit, cursor.as_deref())?;
    let owner = owner.as_deref();
    let mut handle = owner
        .map(|owner| handle::parse("owner", owner))
        .transpose()?;
    if handle == Some(ME) {
        // No organization has the handle `me`.
        handle = reader.org().handle.as_deref().or(handle);
    }
    let after = page.id.as_ref().map(|name| format!("suite:{name}"));
    let db = app.db.get();
    let wanted = store::suite::Listed {
        org_id: reader.org_id(),
        handle,
        after: after.as_deref(),
    };
    let (extent, has_next) =
        store::suite::list_extent(&db, wanted, page.rows(), LIST_BYTES_MAX).await?;
    room.reserve_response(extent.bytes * PageForm::JSON.byte_cost)
        .await?;
    let rows = store::suite::list(&db, wanted, extent.items).await?;
    let last = rows.last().filter(|_| has_next);
    let next_cursor = last.map(|row| {
        let name = row.suite_id.as_str().trim_start_matches("suite:");
        page.after(Timestamp::UNIX_EPOCH, name.to_owned())
    });
    let suites = rows
        .into_iter()
        .map(|row| row.into_suite(&app.settings.common.hfm_sha));
    Ok(Suites {
        suites: suites.collect(),
        next_cursor,
    })
}

/// Returns the first page of [`list`].
pub async fn first_page(app: &App, reader: &SuiteReader, room: &Reservation) -> Result<Vec<Suite>> {
    let input = inputs::ListSuites {
        owner: None,
        limit: None,
        cursor: None,
    };
    Ok(list(app, reader, input, room).await?.suites)
}

/// Returns a suite in its current version.
pub async fn get(app: &App, visitor: &SuiteVisitor, suite_id: &str) -> Result<Suite> {
    let not_found = || not_found(visitor);
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    let seen = seen_by(app, visitor.org_id(), &suite_id).await?;
    seen.ok_or_else(not_found)
}

/// Returns a suite in its current version, if the organization, or a caller without a credential, sees it.
pub(super) async fn seen_by(
    app: &App,
    org_id: Option<&OrgId>,
    suite_id: &SuiteId,
) -> Result<Option<Suite>> {
    let row = store::suite::find(&app.db.get(), org_id, suite_id, None).await?;
    Ok(row.map(|row| row.into_suite(&app.settings.common.hfm_sha)))
}

/// Returns a suite's versions, the newest first. Their memory is charged to `room` before they are read.
pub async fn versions(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    room: &Reservation,
) -> Result<SuiteVersions> {
    let not_found = || not_found(visitor);
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    let (db, org_id) = (app.db.get(), visitor.org_id());
    let extent = store::suite::versions_extent(&db, org_id, &suite_id).await?;
    let (versions, errata_bytes) = extent.ok_or_else(not_found)?;
    let bytes = versions * VERSION_BYTES + errata_bytes;
    // The rows, the versions made of them, and the growing body.
    room.reserve_response(3 * bytes).await?;
    let versions = store::suite::versions(&db, org_id, &suite_id, None, VERSIONS_MAX).await?;
    Ok(SuiteVersions { versions })
}

/// Longest version as JSON without errata, in bytes.
const VERSION_BYTES: u64 = 640;

/// Returns the error for a suite that the caller does not see, or that does not exist.
fn not_found(visitor: &SuiteVisitor) -> Error {
    match visitor.org_id() {
        Some(_) => Error::not_found(Resource::Suite),
        None => Error::new(
            Code::Unauthenticated,
            "There is no such public suite. Send an API key or a session token to read others: \
             Authorization: Bearer <TOKEN>",
        ),
    }
}

/// The largest page over a protocol, and what it costs.
#[derive(Clone, Copy)]
pub(super) struct PageForm {
    /// Maximum number of JSON bytes in a page's items. A page has at least one item.
    bytes_max: u32,
    /// Memory that each takes while the page is read and written, in bytes.
    byte_cost: u64,
}

impl PageForm {
    /// A page as JSON: its rows, the items made of them, and the growing body.
    pub(super) const JSON: Self = Self {
        bytes_max: 4 * 1024 * 1024,
        byte_cost: 4,
    };

    /// A page as a message. A JSON byte becomes up to 6.5 message bytes, one of them in `input_json`, and
    /// clients accept 4 MiB by default.
    pub(super) const MESSAGE: Self = Self {
        bytes_max: 600 * 1024,
        byte_cost: 15,
    };
}

/// Returns a page of the items of a suite, of the version that the cursor names or else of the
/// current one. Its memory is charged to `room` before it is read.
pub async fn items(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    input: inputs::ListSuiteItems,
    room: &Reservation,
) -> Result<SuiteItems> {
    page(app, visitor, suite_id, input, PageForm::JSON, room).await
}

/// Does the same as [`items`] for a response that is a message.
pub async fn message_items(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    input: inputs::ListSuiteItems,
    room: &Reservation,
) -> Result<SuiteItems> {
    page(app, visitor, suite_id, input, PageForm::MESSAGE, room).await
}

async fn page(
    app: &App,
    visitor: &SuiteVisitor,
    suite_id: &str,
    input: inputs::ListSuiteItems,
    form: PageForm,
    room: &Reservation,
) -> Result<SuiteItems> {
    let limit = validation::limit(input.limit, ITEMS_PAGE.0, ITEMS_PAGE.1)?;
    let cursor = input.cursor.as_deref();
    let cursor = cursor.map(str::parse::<ItemCursor>).transpose()?;
    let not_found = || not_found(visitor);
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    let cursor = cursor.map(|cursor| cursor.of(&suite_id)).transpose()?;
    let found = store::suite::find(
        &app.db.get(),
        visitor.org_id(),
        &suite_id,
        cursor.as_ref().map(|cursor| cursor.version.as_str()),
    )
    .await?;
    let suite = match (found, &cursor) {
        (Some(suite), _) => suite,
        // The suite may exist without the version that the cursor names.
        (None, Some(_))
            if store::suite::find(&app.db.get(), visitor.org_id(), &suite_id, None)
                .await?
                .is_some() =>
        {
            return Err(bad_cursor());
        }
        (None, _) => return Err(not_found()),
    };
    if suite.is_removed {
        return Err(Error::suite_removed());
    }
    let from = cursor.map_or(0, |cursor| cursor.ordinal);
    let paged = Paged {
        suite_id,
        version: suite.version,
        content_id: suite.content_id,
        n_items: suite.n_items,
    };
    read_page(app, paged, (from, limit), form, room).await
}

/// A version whose items are listed.
pub(super) struct Paged {
    /// The suite id.
    pub suite_id: SuiteId,
    /// The version.
    pub version: String,
    /// The version's content.
    pub content_id: i64,
    /// The item count.
    pub n_items: i32,
}

/// Returns a page of at most `limit` items, from an ordinal on. Their memory is charged to `room` before they are read.
///
/// # Errors
/// If there is no item with the ordinal, or the operator has removed the version.
pub(super) async fn read_page(
    app: &App,
    paged: Paged,
    (from, limit): (i32, u32),
    form: PageForm,
    room: &Reservation,
) -> Result<SuiteItems> {
    let Paged {
        suite_id,
        version,
        content_id,
        n_items,
    } = paged;
    if from >= n_items {
        return Err(bad_cursor());
    }
    let db = app.db.get();
    let extent = store::suite::items_extent(&db, content_id, from, limit, form.bytes_max).await?;
    room.reserve_response(extent.bytes * form.byte_cost).await?;
    let items = store::suite::items(&db, content_id, from, extent.items).await?;
    if items.is_empty() {
        return Err(Error::suite_removed());
    }
    let next = from.saturating_add(i32::try_from(items.len()).unwrap_or(i32::MAX));
    let next_cursor = (next < n_items).then(|| ItemCursor::new(&suite_id, version.clone(), next));
    Ok(SuiteItems {
        suite_id,
        suite_version: version,
        items,
        n_items: n_items.into(),
        next_cursor,
    })
}

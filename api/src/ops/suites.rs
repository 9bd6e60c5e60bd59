//! Suites and their items: `/v1/suites`.

use assay_core::model::cursor::bad_cursor;
use assay_core::model::permissions::SuiteReader;
use assay_core::model::suite::{Suite, SuiteId, Suites};
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor, SuiteItems};
use assay_core::model::validation;
use assay_core::{Error, Resource, Result, store};

use crate::app::App;
use crate::generated::inputs;
use crate::limits::request_memory::Reservation;

/// Returns the current version of each suite. Every organization sees all suites.
pub async fn list(app: &App, _: &SuiteReader) -> Result<Suites> {
    Ok(Suites {
        suites: store::suite::list(&app.db.get())
            .await?
            .into_iter()
            .map(|row| row.into_suite(&app.settings.common.hfm_sha))
            .collect(),
    })
}

/// Returns a suite in its current version.
pub async fn get(app: &App, _: &SuiteReader, suite_id: &str) -> Result<Suite> {
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    let row = store::suite::find(&app.db.get(), &suite_id, None)
        .await?
        .ok_or_else(not_found)?;
    Ok(row.into_suite(&app.settings.common.hfm_sha))
}

fn not_found() -> Error {
    Error::not_found(Resource::Suite)
}

/// The largest page over a protocol, and what it costs.
#[derive(Clone, Copy)]
struct PageForm {
    /// Maximum number of JSON bytes in a page's items. A page has at least one item.
    bytes_max: u32,
    /// Memory that each takes while the page is read and written, in bytes.
    byte_cost: u64,
}

/// A page as JSON: its rows, the items made of them, and the growing body.
const JSON_PAGE: PageForm = PageForm {
    bytes_max: 4 * 1024 * 1024,
    byte_cost: 4,
};

/// A page as a message. A JSON byte becomes up to 6.5 message bytes, one of them in `input_json`, and
/// clients accept 4 MiB by default.
const MESSAGE_PAGE: PageForm = PageForm {
    bytes_max: 600 * 1024,
    byte_cost: 15,
};

/// Returns a page of the items of a suite, of the version that the cursor names or else of the
/// current one. Its memory is charged to `room` before it is read.
pub async fn items(
    app: &App,
    _: &SuiteReader,
    suite_id: &str,
    input: inputs::ListSuiteItems,
    room: &Reservation,
) -> Result<SuiteItems> {
    page(app, suite_id, input, JSON_PAGE, room).await
}

/// Does the same as [`items`] for a response that is a message.
pub async fn message_items(
    app: &App,
    _: &SuiteReader,
    suite_id: &str,
    input: inputs::ListSuiteItems,
    room: &Reservation,
) -> Result<SuiteItems> {
    page(app, suite_id, input, MESSAGE_PAGE, room).await
}

async fn page(
    app: &App,
    suite_id: &str,
    input: inputs::ListSuiteItems,
    form: PageForm,
    room: &Reservation,
) -> Result<SuiteItems> {
    let limit = validation::limit(input.limit, ITEMS_PAGE.0, ITEMS_PAGE.1)?;
    let cursor = input.cursor.as_deref();
    let cursor = cursor.map(str::parse::<ItemCursor>).transpose()?;
    let suite_id: SuiteId = suite_id.parse().map_err(|_| not_found())?;
    let cursor = cursor.map(|cursor| cursor.of(&suite_id)).transpose()?;
    let found = store::suite::find(
        &app.db.get(),
        &suite_id,
        cursor.as_ref().map(|cursor| cursor.version.as_str()),
    )
    .await?;
    let suite = match (found, &cursor) {
        (Some(suite), _) => suite,
        // The suite may exist without the version that the cursor names.
        (None, Some(_))
            if store::suite::find(&app.db.get(), &suite_id, None)
                .await?
                .is_some() =>
        {
            return Err(bad_cursor());
        }
        (None, _) => return Err(not_found()),
    };
    let from = cursor.map_or(0, |cursor| cursor.ordinal);
    if from >= suite.n_items {
        return Err(bad_cursor());
    }
    let db = app.db.get();
    let version = &suite.version;
    let extent =
        store::suite::items_extent(&db, &suite_id, version, from, limit, form.bytes_max).await?;
    room.reserve_response(extent.bytes * form.byte_cost).await?;
    let items = store::suite::items(&db, &suite_id, &suite.version, from, extent.items).await?;
    let next = from.saturating_add(i32::try_from(items.len()).unwrap_or(i32::MAX));
    let next_cursor =
        (next < suite.n_items).then(|| ItemCursor::new(&suite_id, suite.version.clone(), next));
    Ok(SuiteItems {
        suite_id,
        suite_version: suite.version,
        items,
        n_items: i64::from(suite.n_items),
        next_cursor,
    })
}

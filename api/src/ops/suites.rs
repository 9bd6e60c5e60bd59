//! Suites and their items: `/v1/suites`.

use assay_core::model::cursor::bad_cursor;
use assay_core::model::permissions::SuiteReader;
use assay_core::model::suite::{Suite, SuiteId, Suites};
use assay_core::model::suite_items::{ITEMS_PAGE, ItemCursor, SuiteItems};
use assay_core::model::validation;
use assay_core::{Error, Resource, Result, store};

use crate::app::App;

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

/// Returns a page of the items of a suite, of the version that the cursor names or else of the
/// current one.
pub async fn items(
    app: &App,
    _: &SuiteReader,
    suite_id: &str,
    cursor: Option<&str>,
    limit: Option<i64>,
) -> Result<SuiteItems> {
    let limit = validation::limit(limit, ITEMS_PAGE.0, ITEMS_PAGE.1)?;
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
    let items = store::suite::items(&app.db.get(), &suite_id, &suite.version, from, limit).await?;
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

//! Submitters: `/v1/suites/{suite_id}/submitters`.

use assay_core::model::cursor::{Listing, bad_cursor};
use assay_core::model::permissions::PublisherReader;
use assay_core::model::submitter::{Submitter, Submitters, pseudonym};
use assay_core::model::suite::SuiteId;
use assay_core::store::submitters::{self, SubmitterRow};
use assay_core::{Error, Resource, Result};

use super::suite_edits::not_owned;
use crate::app::App;
use crate::generated::inputs;

/// Returns a page of the organizations that have submitted to the organization's suite, the newest submission first.
pub async fn list(
    app: &App,
    reader: &PublisherReader,
    suite_id: &str,
    input: inputs::ListSubmitters,
) -> Result<Submitters> {
    let inputs::ListSubmitters {
        version,
        limit,
        cursor,
    } = input;
    let page = Listing::Submitters.page(limit, cursor.as_deref())?;
    let shown = page.id.as_deref().map_or(Ok(0), str::parse::<u32>);
    let shown = i64::from(shown.map_err(|_| bad_cursor())?);
    let suite_id: SuiteId = suite_id
        .parse()
        .map_err(|_| Error::not_found(Resource::Suite))?;
    let (db, org_id) = (app.db.get(), reader.caller().org_id());
    let Some(key) = submitters::key(&db, org_id, &suite_id).await? else {
        let mut connection = db.acquire().await?;
        return Err(not_owned(&mut connection, org_id, &suite_id, Resource::Suite).await?);
    };
    let (version, position) = (version.as_deref(), (page.at, shown));
    let mut rows = submitters::list(&db, org_id, &suite_id, version, position, page.rows()).await?;
    let next = page.cut(&mut rows, |last| (last.last_at, String::new()));
    let next_cursor = next.and(rows.last()).map(|last| {
        let at = last.last_at;
        let earlier = if page.at == Some(at) { shown } else { 0 };
        let here = rows.iter().filter(|row| row.last_at == at).count() as i64;
        page.after(at, (earlier + here).to_string())
    });
    let submitters = rows.into_iter().map(|row| submitter(&key, row));
    Ok(Submitters {
        submitters: submitters.collect::<Result<_>>()?,
        next_cursor,
    })
}

fn submitter(key: &[u8], row: SubmitterRow) -> Result<Submitter> {
    Ok(Submitter {
        submitter: pseudonym(key, &row.org_id)?,
        org_name: row.org_name,
        by_publisher: row.by_publisher,
        n_submissions: row.n_submissions,
        n_failed: row.n_failed,
        n_entries: row.n_entries,
        first_at: row.first_at,
        last_at: row.last_at,
    })
}

//! The output of prediction jobs: `GET /v1/jobs/{job_id}/output`.

use std::ops::Range;

use assay_core::model::job::{JobStatus, JobType};
use assay_core::model::permissions::JobReader;
use assay_core::model::upload::PartObject;
use assay_core::store::job::OutputRow;
use assay_core::{Error, JobId, Resource, Result, store};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};

use super::jobs::not_found;
use crate::app::App;
use crate::limits::concurrency::ConcurrencyPermit;

/// The largest piece of a stream, in bytes. A connection holds one.
const PIECE_BYTES: usize = 64 * 1024;

/// An output that is stored.
pub struct StoredOutput {
    /// The size of the output, in bytes.
    pub bytes: u64,
    /// The SHA-256 of the output, 64 lower-case hex digits.
    pub sha256: String,
    parts: Vec<PartObject>,
    /// Held until the stream ends.
    permit: ConcurrencyPermit,
}

/// Returns the output of a prediction job that has succeeded.
///
/// # Errors
/// 404 if there is no such job, or no output any more, 409 if the job has not succeeded.
pub async fn find(app: &App, caller: &JobReader, job_id: &str) -> Result<StoredOutput> {
    let job_id: JobId = job_id.parse().map_err(|_| not_found())?;
    let org_id = caller.org_id();
    let permit = app.concurrency.job_outputs.acquire(org_id.as_str()).await?;
    let found = store::job::output(&app.db.jobs.get(), org_id, &job_id)
        .await?
        .ok_or_else(not_found)?;
    let missing = |why: &str| {
        Err(Error::not_found_with(
            Resource::Output,
            format!("No such output: {why}."),
        ))
    };
    let OutputRow {
        r#type,
        status,
        upload_id,
        is_stored,
        bytes,
        sha256,
    } = found;
    match (r#type, status) {
        (JobType::Predict, JobStatus::Succeeded) => {}
        (JobType::Predict, status) => {
            let message = format!("The job is {status}; only a succeeded job has an output.");
            return Err(Error::invalid_state(Resource::Job, message));
        }
        (JobType::Eval, _) => return missing("the job is an eval, and its result is in the job"),
    }
    let (Some(upload_id), true, Some(bytes), Some(sha256)) = (upload_id, is_stored, bytes, sha256)
    else {
        return missing("it has expired or was deleted; run the job again");
    };
    Ok(StoredOutput {
        bytes: bytes.unsigned_abs(),
        sha256,
        parts: store::upload::part_objects(&app.db.jobs.get(), org_id, &upload_id).await?,
        permit,
    })
}

impl StoredOutput {
    /// Returns a stream of a range of the output. It ends with an error if the output is deleted
    /// meanwhile.
    pub fn stream(
        self,
        app: &App,
        range: Range<u64>,
    ) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
        let artifacts = app.artifacts.clone();
        let permit = self.permit;
        let pieces = stream::iter(ranges_of_parts(self.parts, range)).then(move |(key, range)| {
            let artifacts = artifacts.clone();
            async move {
                let found = artifacts.stream_range(&key, range).await?;
                found.ok_or_else(|| Error::internal("an object of an output is missing"))
            }
        });
        let small = |piece: Bytes| {
            let starts = (0..piece.len()).step_by(PIECE_BYTES);
            stream::iter(starts.map(move |from| {
                Ok::<_, Error>(piece.slice(from..piece.len().min(from + PIECE_BYTES)))
            }))
        };
        pieces
            .try_flatten()
            .map_ok(small)
            .try_flatten()
            .inspect(move |_| {
                // Moves the permit into the stream.
                let _ = &permit;
            })
    }
}

/// Returns the objects that have a range of an output, each with its range of the object.
fn ranges_of_parts(parts: Vec<PartObject>, range: Range<u64>) -> Vec<(String, Range<u64>)> {
    let mut start = 0;
    let mut ranges = Vec::new();
    for part in parts {
        let end = start + part.bytes.unsigned_abs();
        let (from, to) = (range.start.max(start), range.end.min(end));
        if from < to {
            ranges.push((part.object_key, from - start..to - start));
        }
        start = end;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_covers_parts() {
        let parts = || {
            [("a", 5), ("b", 3), ("c", 4)].map(|(key, bytes)| PartObject {
                number: 1,
                object_key: key.into(),
                bytes,
            })
        };
        let ranges = |range| {
            let found = ranges_of_parts(parts().into(), range);
            let text = |(key, range): (String, Range<u64>)| format!("{key}{range:?}");
            found.into_iter().map(text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ranges(0..12), "a0..5 b0..3 c0..4");
        assert_eq!(ranges(4..9), "a4..5 b0..3 c0..1");
        assert_eq!(ranges(5..8), "b0..3");
        assert_eq!(ranges(11..12), "c3..4");
        assert_eq!(ranges(3..3), "");
    }
}

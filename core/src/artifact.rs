//! Where submissions are kept until they are scored: an object store, by default a folder.

use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use crate::{Error, JobId, OrgId, Result};

/// Marks a folder as the one in which an api keeps submissions.
const MARKER: &str = ".assay-artifacts";

/// How long a worker waits for that mark.
const PATIENCE_SECONDS: u32 = 15;

/// The object store of an installation. Api and workers must see the same one.
#[derive(Clone, Debug)]
pub struct Artifacts(Arc<dyn ObjectStore>);

impl Artifacts {
    /// The folder where the api keeps submissions; it is made, and marked as such, if it is not there.
    pub fn create(folder: &FilePath) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(Error::internal)?;
        std::fs::write(folder.join(MARKER), "Assay keeps submissions here until they are scored.\n").map_err(Error::internal)?;
        Self::folder(folder)
    }

    /// The same folder, for a worker. It is waited for a while, because both may start at once. A folder without the
    /// mark is another one, or a volume that is not there: every job would fail for want of its submission.
    pub async fn open(folder: &FilePath) -> Result<Self> {
        for _ in 0..PATIENCE_SECONDS * 10 {
            if folder.join(MARKER).exists() {
                return Self::folder(folder);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let told = format!("{} is not the folder in which an api keeps submissions: set ASSAY_ARTIFACTS to that one", folder.display());
        Err(Error::internal(told))
    }

    fn folder(folder: &FilePath) -> Result<Self> {
        let store = LocalFileSystem::new_with_prefix(folder).map_err(Error::internal)?;
        // A job that was accepted must find its submission after a power cut, too.
        Ok(Self(Arc::new(store.with_fsync(true))))
    }

    /// The name under which the inline predictions of a job are kept.
    pub fn predictions_key(org_id: &OrgId, job_id: &JobId) -> String {
        format!("{org_id}/{job_id}.predictions.json")
    }

    /// The name under which an attempt keeps the scores of its job's items: as 64-bit floating-point numbers, the low
    /// byte first.
    pub fn scores_key(org_id: &OrgId, job_id: &JobId, attempt: i32) -> String {
        format!("{org_id}/{job_id}.{attempt}.scores.f64")
    }

    /// Writes an object whole: afterwards it is there under its name, or nothing is.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.0.put(&Path::from(key), bytes.into()).await.map_err(Error::unavailable)?;
        Ok(())
    }

    /// Reads an object. `None` when there is none of that name.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        match self.0.get(&Path::from(key)).await {
            Ok(found) => found.bytes().await.map(Some).map_err(Error::unavailable),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::unavailable(error)),
        }
    }

    /// Reads a part of an object. `None` when there is none of that name.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        match self.0.get_range(&Path::from(key), range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::unavailable(error)),
        }
    }

    /// Removes an object; that it is not there is no error.
    pub async fn delete(&self, key: &str) -> Result<()> {
        match self.0.delete(&Path::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::unavailable(error)),
        }
    }
}

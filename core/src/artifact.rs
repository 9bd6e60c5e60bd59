//! Where submissions are kept until they are scored: an object store, by default a folder.

use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};

use crate::{Error, JobId, OrgId, Result};

/// The object store of an installation. Api and workers must see the same one.
#[derive(Clone, Debug)]
pub struct Artifacts(Arc<dyn ObjectStore>);

impl Artifacts {
    /// A folder of this machine; it is made if it is not there.
    pub fn folder(folder: &FilePath) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(Error::internal)?;
        let store = LocalFileSystem::new_with_prefix(folder).map_err(Error::internal)?;
        Ok(Self(Arc::new(store)))
    }

    /// The name under which the inline predictions of a job are kept.
    pub fn predictions_key(org_id: &OrgId, job_id: &JobId) -> String {
        format!("{org_id}/{job_id}/predictions.json")
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

    /// Removes an object; that it is not there is no error.
    pub async fn delete(&self, key: &str) -> Result<()> {
        match self.0.delete(&Path::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::unavailable(error)),
        }
    }
}

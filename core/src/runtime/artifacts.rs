//! The artifact store for submissions and uploads: an object store, by default a folder.

use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    GetOptions, ObjectStore, ObjectStoreExt as _, PutPayloadMut, RetryConfig, WriteMultipart,
};

use crate::model::error::{BestEffort as _, Error, Result};
use crate::model::ids::{JobId, OrgId};
use crate::runtime::process_error::ProcessError;
use crate::runtime::tls::select_cryptography;

/// Name of the object that marks an API's artifact store. Workers check for it.
const MARKER: &str = ".assay-artifacts";

/// A worker's longest wait for the marker.
const MARKER_TIMEOUT: Duration = Duration::from_secs(15);

/// Chunk size in which an object is written, in bytes: S3's minimum for a part that is
/// not the last one.
const CHUNK: usize = 5 * 1024 * 1024;

/// Range size in which an object is read, in bytes.
const RANGE_SIZE: u64 = 4 * 1024 * 1024;

/// Time for which a request to a remote store is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// An installation's artifact store. The API, the workers and the embedded engine must use the
/// same one.
#[derive(Clone, Debug)]
pub struct Artifacts {
    store: Arc<dyn ObjectStore>,
    /// The folder of the store. `None` for a bucket.
    folder: Option<PathBuf>,
}

impl Artifacts {
    /// Opens an API's store and writes the marker. `location` is a folder, which is created if
    /// it does not exist, or `s3://bucket/prefix`.
    pub async fn create(location: &str) -> Result<Self, ProcessError> {
        if !is_remote(location) {
            std::fs::create_dir_all(location).map_err(Error::internal)?;
        }
        let artifacts = Self::at(location)?;
        let written = artifacts
            .put(
                MARKER,
                Bytes::from_static(b"Assay keeps submissions here.\n"),
            )
            .await;
        match written {
            Ok(()) => Ok(artifacts),
            Err(error) => Err(ProcessError::ArtifactsNotWritable {
                location: location.to_owned(),
                cause: error.cause_or_message(),
            }),
        }
    }

    /// Opens a worker's store. Waits up to 15 s for the marker, because the API may start at
    /// the same time.
    ///
    /// # Errors
    /// If there is no marker: then the location is wrong, or a volume is not mounted, and every job
    /// would fail because its submission is missing.
    pub async fn open(location: &str) -> Result<Self, ProcessError> {
        let start = tokio::time::Instant::now();
        while start.elapsed() < MARKER_TIMEOUT {
            if let Ok(artifacts) = Self::at(location)
                && artifacts.store.head(&Path::from(MARKER)).await.is_ok()
            {
                return Ok(artifacts);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(ProcessError::NotAnArtifactStore {
            location: location.to_owned(),
        })
    }

    /// Opens a store without a look at its marker, to check the store itself.
    ///
    /// # Errors
    /// If the location has no valid form, or the folder does not exist.
    pub fn at(location: &str) -> Result<Self> {
        if let Some(bucket) = location.strip_prefix("s3://") {
            let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
            select_cryptography();
            let store = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_retry(RetryConfig {
                    max_retries: 3,
                    retry_timeout: RETRY_TIMEOUT,
                    ..RetryConfig::default()
                })
                .build()
                .map_err(Error::internal)?;
            return Ok(Self {
                store: Arc::new(PrefixStore::new(store, prefix)),
                folder: None,
            });
        }
        let store = LocalFileSystem::new_with_prefix(location).map_err(Error::internal)?;
        // Without fsync, a power failure could lose an accepted job's submission.
        Ok(Self {
            store: Arc::new(store.with_fsync(true)),
            folder: Some(FilePath::new(location).to_path_buf()),
        })
    }

    /// Returns the object name for a job's inline predictions.
    pub fn predictions_key(org_id: &OrgId, job_id: &JobId) -> String {
        format!("{org_id}/{job_id}.predictions.json")
    }

    /// Returns the object name for an attempt's item scores, in `item_scores`
    /// format.
    ///
    /// Names that end in `.f64` are from earlier versions: one little-endian 64-bit floating-point
    /// number per item.
    pub fn scores_key(org_id: &OrgId, job_id: &JobId, attempt: i32) -> String {
        format!("{org_id}/{job_id}.{attempt}.scores")
    }

    /// Writes an object atomically: it exists completely, or not at all.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.store
            .put(&Path::from(key), bytes.into())
            .await
            .map_err(Error::unavailable)?;
        Ok(())
    }

    /// Creates a writer for an object whose bytes arrive in pieces.
    pub fn writer(&self, key: &str) -> Writer {
        Writer {
            store: Arc::clone(&self.store),
            path: Path::from(key),
            small: PutPayloadMut::new(),
            large: None,
            written: 0,
        }
    }

    /// Reads an object. Returns `None` if it does not exist.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        match self.store.get(&Path::from(key)).await {
            Ok(found) => found.bytes().await.map(Some).map_err(Error::unavailable),
            Err(error) => none_if_missing(error),
        }
    }

    /// Reads an object's range. Returns `None` if it does not exist. Bytes after its end are
    /// left out.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        match self.store.get_range(&Path::from(key), range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => none_if_missing(error),
        }
    }

    /// Returns an object's size in bytes. Returns `None` if it does not exist.
    pub async fn size(&self, key: &str) -> Result<Option<u64>> {
        match self.store.head(&Path::from(key)).await {
            Ok(found) => Ok(Some(found.size)),
            Err(error) => none_if_missing(error),
        }
    }

    /// Reads an object's range as a stream. Returns `None` if the object does not exist.
    pub async fn stream_range(
        &self,
        key: &str,
        range: Range<u64>,
    ) -> Result<Option<BoxStream<'static, Result<Bytes>>>> {
        let options = GetOptions::default().with_range(Some(range));
        match self.store.get_opts(&Path::from(key), options).await {
            Ok(found) => Ok(Some(
                found.into_stream().map_err(Error::unavailable).boxed(),
            )),
            Err(error) => none_if_missing(error),
        }
    }

    /// Returns all object names that begin with `prefix` and a slash.
    pub async fn list_under(&self, prefix: &str) -> Result<Vec<String>> {
        let names = self.store.list(Some(&Path::from(prefix)));
        let names = names.map_ok(|object| object.location.into());
        names.try_collect().await.map_err(Error::unavailable)
    }

    /// Removes an object. A missing object is not an error.
    pub async fn delete(&self, key: &str) -> Result<()> {
        match self.store.delete(&Path::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::unavailable(error)),
        }
    }

    /// Returns `true` if this is the marker's name.
    pub fn is_marker(key: &str) -> bool {
        key == MARKER
    }

    /// Returns `true` if the object exists.
    pub async fn exists(&self, key: &str) -> Result<bool> {
        Ok(self.size(key).await?.is_some())
    }

    /// Lists all objects in the store, in no particular order. The stream buffers a bounded
    /// number.
    pub fn list(&self) -> impl Stream<Item = Result<Object>> + Send + Unpin + use<> {
        let objects = self.store.list(None).map_err(Error::unavailable);
        objects
            .map_ok(|object| Object {
                key: object.location.into(),
                bytes: object.size,
                modified: object.last_modified.into(),
            })
            .boxed()
    }

    /// Counts unfinished objects' files whose writer has crashed and that were last written
    /// before this time. Removes them if `remove` is `true`.
    ///
    /// Only folders have such files. A bucket has incomplete multipart uploads, which a lifecycle
    /// rule on the bucket removes.
    pub async fn remove_unfinished(&self, before: SystemTime, remove: bool) -> Result<u64> {
        let Some(folder) = self.folder.clone() else {
            return Ok(0);
        };
        let found = tokio::task::spawn_blocking(move || remove_unfinished(&folder, before, remove))
            .await
            .map_err(Error::internal)?;
        found.map_err(Error::unavailable)
    }

    /// Removes all objects whose names begin with `prefix` and a slash, unfinished ones included.
    ///
    /// In S3, unfinished objects are parts that no listing shows. A lifecycle rule on the bucket
    /// must remove them.
    pub async fn delete_under(&self, prefix: &str) -> Result<()> {
        let prefix = Path::from(prefix);
        if let Some(folder) = &self.folder {
            return match tokio::fs::remove_dir_all(folder.join(prefix.as_ref())).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::unavailable(error))
                }
                _ => Ok(()),
            };
        }
        let names = self
            .store
            .list(Some(&prefix))
            .map_ok(|object| object.location)
            .boxed();
        let mut removed = self.store.delete_stream(names);
        while let Some(name) = removed.next().await {
            match name {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(Error::unavailable(error)),
            }
        }
        Ok(())
    }
}

/// A stored object, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The object's name.
    pub key: String,
    /// The object's size, in bytes.
    pub bytes: u64,
    /// The time at which it was written, by the store's clock.
    pub modified: SystemTime,
}

fn remove_unfinished(folder: &FilePath, before: SystemTime, remove: bool) -> std::io::Result<u64> {
    let is_missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let entries = match std::fs::read_dir(folder) {
        Err(error) if is_missing(&error) => return Ok(0),
        entries => entries?,
    };
    let mut found = 0;
    for entry in entries {
        let entry = entry?;
        // Other processes remove files and folders at the same time.
        let metadata = match entry.metadata() {
            Err(error) if is_missing(&error) => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            found += remove_unfinished(&entry.path(), before, remove)?;
        } else if is_unfinished(&entry.file_name().to_string_lossy())
            && metadata.modified()? < before
        {
            found += 1;
            if remove {
                std::fs::remove_file(entry.path()).or_else(|error| {
                    if is_missing(&error) {
                        Ok(())
                    } else {
                        Err(error)
                    }
                })?;
            }
        }
    }
    Ok(found)
}

/// Returns `true` if the file is an unfinished object. The store appends `#` and digits to its
/// name.
fn is_unfinished(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, digits)| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns the ranges in which to read an object with this many bytes, so that at most one is in
/// memory.
pub fn windows(bytes: u64) -> impl Iterator<Item = Range<u64>> {
    (0..bytes.div_ceil(RANGE_SIZE)).map(move |at| at * RANGE_SIZE..bytes.min((at + 1) * RANGE_SIZE))
}

fn is_remote(location: &str) -> bool {
    location.starts_with("s3://")
}

fn none_if_missing<T>(error: object_store::Error) -> Result<Option<T>> {
    match error {
        object_store::Error::NotFound { .. } => Ok(None),
        error => Err(Error::unavailable(error)),
    }
}

/// An object's writer. It buffers at most twice `CHUNK`. If it is dropped before
/// [`Writer::finish`], the object is discarded.
pub struct Writer {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// The bytes that were written, while they are less than a chunk.
    small: PutPayloadMut,
    large: Option<WriteMultipart>,
    written: usize,
}

impl Writer {
    /// Returns the most buffered bytes: the current chunk's, and a chunk that
    /// is being sent to the store.
    pub fn buffered(&self) -> usize {
        self.written.min(CHUNK + self.written % CHUNK)
    }

    /// Appends bytes to the object. Waits while a chunk is being sent.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len();
        if self.large.is_none() {
            if self.small.content_length() + bytes.len() <= CHUNK {
                self.small.extend_from_slice(bytes);
                return Ok(());
            }
            let multipart = self
                .store
                .put_multipart(&self.path)
                .await
                .map_err(Error::unavailable)?;
            let large = self
                .large
                .insert(WriteMultipart::new_with_chunk_size(multipart, CHUNK));
            let small = std::mem::take(&mut self.small).freeze();
            small.iter().for_each(|piece| large.write(piece));
        }
        let Some(large) = &mut self.large else {
            return Ok(());
        };
        for bytes in bytes.chunks(CHUNK) {
            large
                .wait_for_capacity(1)
                .await
                .map_err(Error::unavailable)?;
            large.write(bytes);
        }
        Ok(())
    }

    /// Finishes the object. From then on it exists under its name.
    pub async fn finish(mut self) -> Result<()> {
        match self.large.take() {
            Some(large) => large.finish().await.map(drop).map_err(Error::unavailable),
            None => self
                .store
                .put(&self.path, std::mem::take(&mut self.small).freeze())
                .await
                .map(drop)
                .map_err(Error::unavailable),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let (Some(large), Ok(runtime)) =
            (self.large.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move {
                large
                    .abort()
                    .await
                    .best_effort("discarding an unfinished object");
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(name: &str) -> String {
        std::env::temp_dir()
            .join(format!("assay-artifacts-{name}-{}", std::process::id()))
            .to_string_lossy()
            .into_owned()
    }

    #[tokio::test]
    async fn pieces_round_trip() {
        let location = location("pieces");
        let artifacts = Artifacts::create(&location).await.unwrap();
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17] {
            let whole: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let mut writer = artifacts.writer("a/b");
            for piece in whole.chunks(700_001) {
                writer.write(piece).await.unwrap();
            }
            writer.finish().await.unwrap();
            let mut read = Vec::new();
            for range in windows(length as u64) {
                read.extend_from_slice(&artifacts.get_range("a/b", range).await.unwrap().unwrap());
            }
            assert_eq!((read.len(), read == whole), (length, true));
        }
        assert_eq!(
            artifacts.get_range("a/b", 3..6).await.unwrap().unwrap(),
            [3_u8, 4, 5].as_slice()
        );
        assert!(artifacts.get_range("a/none", 0..1).await.unwrap().is_none());
        let size = artifacts.size("a/b").await.unwrap();
        assert_eq!(size, Some(3 * CHUNK as u64 + 17));
        assert_eq!(artifacts.size("a/none").await.unwrap(), None);
        std::fs::remove_dir_all(location).unwrap();
    }

    #[tokio::test]
    async fn prefix_and_unfinished_objects_are_removed() {
        let location = location("prefix");
        let artifacts = Artifacts::create(&location).await.unwrap();
        for key in ["o/u/1", "o/u/2", "o/ux"] {
            artifacts.put(key, Bytes::from_static(b"x")).await.unwrap();
        }
        let mut crashed = artifacts.writer("o/u/3");
        crashed.write(&vec![0; 2 * CHUNK]).await.unwrap();
        // A killed process does not drop the writer.
        std::mem::forget(crashed);
        let mut unfinished = artifacts.writer("o/v/1");
        unfinished.write(&vec![0; 2 * CHUNK]).await.unwrap();
        std::mem::forget(unfinished);
        let past = SystemTime::UNIX_EPOCH;
        let future =
            SystemTime::from(crate::model::timestamp::Timestamp::now()) + Duration::from_secs(60);
        assert_eq!(artifacts.remove_unfinished(past, true).await.unwrap(), 0);
        assert_eq!(artifacts.remove_unfinished(future, false).await.unwrap(), 2);
        assert_eq!(artifacts.remove_unfinished(future, true).await.unwrap(), 2);
        let listed: Vec<String> = artifacts
            .list()
            .map_ok(|object| object.key)
            .try_collect()
            .await
            .unwrap();
        assert_eq!(listed.len(), 4, "with the marker: {listed:?}");
        assert!(
            artifacts.exists("o/ux").await.unwrap() && !artifacts.exists("o/v/1").await.unwrap()
        );
        artifacts.delete_under("o/u").await.unwrap();
        artifacts.delete_under("o/u").await.unwrap();
        assert!(artifacts.get("o/ux").await.unwrap().is_some());
        assert!(!FilePath::new(&location).join("o/u").exists());
        std::fs::remove_dir_all(location).unwrap();
    }
}

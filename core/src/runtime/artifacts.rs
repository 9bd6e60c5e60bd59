//! Where submissions and uploads are kept: an object store, by default a folder.

use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayloadMut, RetryConfig, WriteMultipart};

use crate::model::error::{BestEffort as _, Error, Result};
use crate::model::ids::{JobId, OrgId};

/// Marks a place as the one in which an api keeps submissions.
const MARKER: &str = ".assay-artifacts";

/// How long a worker waits for that mark.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How much of an object is sent at once: the least that S3 takes as a part that is not the last.
const CHUNK: usize = 5 * 1024 * 1024;

/// How much of an object is fetched at once when it is read through.
const WINDOW: u64 = 4 * 1024 * 1024;

/// How long a request to a remote store is tried again.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The object store of an installation. Api and workers must see the same one.
#[derive(Clone, Debug)]
pub struct Artifacts {
    store: Arc<dyn ObjectStore>,
    /// Where the store is a folder.
    folder: Option<PathBuf>,
}

impl Artifacts {
    /// The place where the api keeps submissions, a folder or `s3://bucket/prefix`; it is marked as such, and a folder
    /// is made if it is not there.
    pub async fn create(place: &str) -> Result<Self> {
        if !is_remote(place) {
            std::fs::create_dir_all(place).map_err(Error::internal)?;
        }
        let artifacts = Self::of(place)?;
        let marked = artifacts
            .put(
                MARKER,
                Bytes::from_static(b"Assay keeps submissions here.\n"),
            )
            .await;
        marked.map_err(|error| {
            Error::internal(format!(
                "cannot write to {place}, which ASSAY_ARTIFACTS names: {error}"
            ))
        })?;
        Ok(artifacts)
    }

    /// The same place, for a worker. It is waited for a while, because both may start at once. A place without the mark
    /// is another one, or a volume that is not there: every job would fail for want of its submission.
    pub async fn open(place: &str) -> Result<Self> {
        let began = tokio::time::Instant::now();
        while began.elapsed() < REQUEST_TIMEOUT {
            if let Ok(artifacts) = Self::of(place)
                && artifacts.store.head(&Path::from(MARKER)).await.is_ok()
            {
                return Ok(artifacts);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let told = format!(
            "{place} is not the place in which an api keeps submissions: set ASSAY_ARTIFACTS to that one"
        );
        Err(Error::internal(told))
    }

    fn of(place: &str) -> Result<Self> {
        if let Some(bucket) = place.strip_prefix("s3://") {
            let (bucket, prefix) = bucket.split_once('/').unwrap_or((bucket, ""));
            let store = AmazonS3Builder::from_env()
                .with_bucket_name(bucket)
                .with_retry(RetryConfig {
                    max_retries: 3,
                    retry_timeout: TIMEOUT,
                    ..RetryConfig::default()
                })
                .build()
                .map_err(Error::internal)?;
            return Ok(Self {
                store: Arc::new(PrefixStore::new(store, prefix)),
                folder: None,
            });
        }
        let store = LocalFileSystem::new_with_prefix(place).map_err(Error::internal)?;
        // A job that was accepted must find its submission after a power cut, too.
        Ok(Self {
            store: Arc::new(store.with_fsync(true)),
            folder: Some(FilePath::new(place).to_path_buf()),
        })
    }

    /// The name under which the inline predictions of a job are kept.
    pub fn predictions_key(org_id: &OrgId, job_id: &JobId) -> String {
        format!("{org_id}/{job_id}.predictions.json")
    }

    /// The name under which an attempt keeps the scores of its job's items, as `item_scores` writes them. (Once there were
    /// names that end in `.f64`: a 64-bit floating-point number an item, the low byte first, and nothing else.)
    pub fn scores_key(org_id: &OrgId, job_id: &JobId, attempt: i32) -> String {
        format!("{org_id}/{job_id}.{attempt}.scores")
    }

    /// Writes an object whole: afterwards it is there under its name, or nothing is.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<()> {
        self.store
            .put(&Path::from(key), bytes.into())
            .await
            .map_err(Error::unavailable)?;
        Ok(())
    }

    /// Begins an object that is written as its bytes come.
    pub fn writer(&self, key: &str) -> Writer {
        Writer {
            store: Arc::clone(&self.store),
            path: Path::from(key),
            small: PutPayloadMut::new(),
            large: None,
            written: 0,
        }
    }

    /// Reads an object. `None` when there is none of that name.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        match self.store.get(&Path::from(key)).await {
            Ok(found) => found.bytes().await.map(Some).map_err(Error::unavailable),
            Err(error) => missing(error),
        }
    }

    /// Reads a part of an object. `None` when there is none of that name. What lies behind its end is left out.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        match self.store.get_range(&Path::from(key), range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => missing(error),
        }
    }

    /// Removes an object; that it is not there is no error.
    pub async fn delete(&self, key: &str) -> Result<()> {
        match self.store.delete(&Path::from(key)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::unavailable(error)),
        }
    }

    /// Whether this is the object that marks the store as one.
    pub fn is_marker(key: &str) -> bool {
        key == MARKER
    }

    /// Whether there is an object of this name.
    pub async fn exists(&self, key: &str) -> Result<bool> {
        match self.store.head(&Path::from(key)).await {
            Ok(_) => Ok(true),
            Err(error) => Ok(missing::<()>(error)?.is_some()),
        }
    }

    /// All objects of the store, in no order. The listing holds a bounded number of them in memory.
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

    /// Counts the files that hold objects whose writer died, and that were written before this time; removes them if `remove`. Only
    /// folders have such files. A bucket has incomplete multipart uploads, which a rule of the bucket removes.
    pub async fn remove_unfinished(&self, before: SystemTime, remove: bool) -> Result<u64> {
        let Some(folder) = self.folder.clone() else {
            return Ok(0);
        };
        let found = tokio::task::spawn_blocking(move || remove_unfinished(&folder, before, remove))
            .await
            .map_err(Error::internal)?;
        found.map_err(Error::unavailable)
    }

    /// Removes all objects whose names begin with `prefix` and a slash, those that were begun and never finished
    /// included. (In S3 these are parts that no listing shows: let a rule of the bucket's remove them.)
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

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// When it was written, by the store's clock.
    pub modified: SystemTime,
}

fn remove_unfinished(folder: &FilePath, before: SystemTime, remove: bool) -> std::io::Result<u64> {
    let gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let entries = match std::fs::read_dir(folder) {
        Err(error) if gone(&error) => return Ok(0),
        entries => entries?,
    };
    let mut found = 0;
    for entry in entries {
        let entry = entry?;
        // Others remove files and folders meanwhile.
        let about = match entry.metadata() {
            Err(error) if gone(&error) => continue,
            about => about?,
        };
        if about.is_dir() {
            found += remove_unfinished(&entry.path(), before, remove)?;
        } else if is_unfinished(&entry.file_name().to_string_lossy()) && about.modified()? < before
        {
            found += 1;
            if remove {
                std::fs::remove_file(entry.path())
                    .or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })?;
            }
        }
    }
    Ok(found)
}

/// Whether a file holds an object that is being written: the store appends a number sign and digits to its name.
fn is_unfinished(name: &str) -> bool {
    name.rsplit_once('#').is_some_and(|(_, digits)| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The ranges in which an object of this many bytes is read through, so that no more than one of them is in memory.
pub fn windows(bytes: u64) -> impl Iterator<Item = Range<u64>> {
    (0..bytes.div_ceil(WINDOW)).map(move |at| at * WINDOW..bytes.min((at + 1) * WINDOW))
}

fn is_remote(place: &str) -> bool {
    place.starts_with("s3://")
}

fn missing<T>(error: object_store::Error) -> Result<Option<T>> {
    match error {
        object_store::Error::NotFound { .. } => Ok(None),
        error => Err(Error::unavailable(error)),
    }
}

/// An object that is being written. It holds twice `CHUNK` in memory at most. Dropped before it is finished, it
/// leaves nothing behind.
pub struct Writer {
    store: Arc<dyn ObjectStore>,
    path: Path,
    /// What has come so far, while it is less than a chunk.
    small: PutPayloadMut,
    large: Option<WriteMultipart>,
    written: usize,
}

impl Writer {
    /// The bytes that are in memory at most: a chunk that fills, and one that is on its way to the store.
    pub fn buffered(&self) -> usize {
        self.written.min(CHUNK + self.written % CHUNK)
    }

    /// Writes more.
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

    /// The object is whole: from here on it is there under its name.
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
                    .best_effort("giving up an object that was begun");
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> String {
        std::env::temp_dir()
            .join(format!("assay-artifacts-{name}-{}", std::process::id()))
            .to_string_lossy()
            .into_owned()
    }

    #[tokio::test]
    async fn what_is_written_in_pieces_is_read_in_pieces() {
        let place = place("pieces");
        let artifacts = Artifacts::create(&place).await.unwrap();
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
        std::fs::remove_dir_all(place).unwrap();
    }

    #[tokio::test]
    async fn what_was_begun_and_what_lies_under_a_prefix_is_removed() {
        let place = place("prefix");
        let artifacts = Artifacts::create(&place).await.unwrap();
        for key in ["o/u/1", "o/u/2", "o/ux"] {
            artifacts.put(key, Bytes::from_static(b"x")).await.unwrap();
        }
        let mut begun = artifacts.writer("o/u/3");
        begun.write(&vec![0; 2 * CHUNK]).await.unwrap();
        // As when the process is killed.
        std::mem::forget(begun);
        let mut unfinished = artifacts.writer("o/v/1");
        unfinished.write(&vec![0; 2 * CHUNK]).await.unwrap();
        std::mem::forget(unfinished);
        let (past, future) = (
            SystemTime::UNIX_EPOCH,
            SystemTime::from(crate::model::timestamp::Timestamp::now()) + Duration::from_secs(60),
        );
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
        assert!(!FilePath::new(&place).join("o/u").exists());
        std::fs::remove_dir_all(place).unwrap();
    }
}

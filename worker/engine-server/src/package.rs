//! Reading a package from the artifact store. A package is untrusted input: its file names
//! are fixed, their sizes are compared before memory is allocated, and their digests before they are
//! read.

use assay_core::model::error::Error;
use assay_core::model::package::{
    ITEMS_FILE, MANIFEST_BYTES_MAX, MANIFEST_FILE, MODEL_FILE, Manifest, ManifestFile, PackageName,
    WEIGHTS_FILE,
};
use assay_core::runtime::artifacts::{Artifacts, windows};
use assay_engine::{
    MODEL_BYTES_MAX, Model, ModelSpec, PackageError, PackageFiles, item_table_bytes_max,
    network_bytes, weights_bytes_max,
};

use crate::times::Times;

/// A package in memory.
#[derive(Debug)]
pub struct Package {
    /// The model.
    pub model: Model,
    /// Its operations' measured times.
    pub times: Times,
}

/// The reason why a package could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The artifact store has no such package.
    #[error("There is no such package in the artifact store.")]
    NotFound,
    /// The package is corrupt, or not for this engine.
    #[error("{reason}")]
    Invalid {
        /// A sentence for the operator. It can quote the package.
        reason: String,
        /// The file with the error, and the line if there is one. It can be logged.
        place: String,
    },
    /// The package needs more memory than all packages may use.
    #[error(
        "The package needs {bytes} bytes and ASSAY_ENGINE_MEMORY allows {memory}. Give the engine more memory."
    )]
    TooLarge {
        /// The memory that the package needs.
        bytes: u64,
        /// The memory for all packages.
        memory: u64,
    },
    /// Packages that are being loaded have reserved the memory.
    #[error("The memory for packages is used by others that are being loaded. Retry with backoff.")]
    NoMemory,
    /// The artifact store does not respond.
    #[error("The artifact store is unavailable. Retry with backoff.")]
    Unavailable(String),
    /// The load panicked.
    #[error("The package could not be loaded.")]
    Internal,
}

impl LoadError {
    /// Returns the `outcome` label's value.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Invalid { .. } | Self::Internal => "invalid",
            Self::TooLarge { .. } | Self::NoMemory => "no_memory",
            Self::Unavailable(_) => "unavailable",
        }
    }

    /// Returns a text for the log. It quotes no package content, which has item ids.
    pub fn log_text(&self) -> String {
        match self {
            Self::Invalid { place, .. } => place.clone(),
            Self::Unavailable(cause) => format!("{self} {cause}"),
            other => other.to_string(),
        }
    }
}

/// The files that the engine reads, verified.
struct Files {
    model: Vec<u8>,
    weights: Vec<u8>,
    items: Option<Vec<u8>>,
}

/// Reads a package. `reserve` reserves memory for its files and for the model before the large files
/// are read; the reservation is returned with the package.
pub async fn load<R>(
    artifacts: &Artifacts,
    name: &PackageName,
    reserve: impl FnOnce(u64) -> Result<R, LoadError>,
) -> Result<(Package, R), LoadError> {
    let manifest = read_manifest(artifacts, name).await?;
    let required = |file: &str| {
        manifest
            .file(file)
            .ok_or_else(|| invalid(file, format!("The package has no {file}.")))
    };
    let (model, weights) = (required(MODEL_FILE)?, required(WEIGHTS_FILE)?);
    let items = manifest.file(ITEMS_FILE);
    if model.bytes > MODEL_BYTES_MAX as u64 {
        return Err(too_long(MODEL_FILE, model.bytes, MODEL_BYTES_MAX as u64));
    }
    let model = verified(model, read_file(artifacts, name, model).await?).await?;
    let spec = ModelSpec::parse(&model).map_err(|error| invalid_package(&error))?;
    if weights.bytes > weights_bytes_max(&spec) {
        return Err(too_long(
            WEIGHTS_FILE,
            weights.bytes,
            weights_bytes_max(&spec),
        ));
    }
    let items_bytes = items.map_or(0, |items| items.bytes);
    let sizes = [
        weights.bytes,
        network_bytes(&spec),
        items_bytes,
        item_table_bytes_max(items_bytes, spec.level_sizes.len()),
    ];
    let reservation = reserve(sizes.into_iter().fold(0, u64::saturating_add))?;
    let files = Files {
        model,
        weights: verified(weights, read_file(artifacts, name, weights).await?).await?,
        items: match items {
            Some(items) => Some(verified(items, read_file(artifacts, name, items).await?).await?),
            None => None,
        },
    };
    let package = blocking(move || {
        let files = PackageFiles {
            model: &files.model,
            weights: &files.weights,
            items: files.items.as_deref(),
        };
        let model = Model::load(&files).map_err(|error| invalid_package(&error))?;
        Ok(Package {
            model,
            times: Times::default(),
        })
    });
    Ok((package.await?, reservation))
}

async fn read_manifest(artifacts: &Artifacts, name: &PackageName) -> Result<Manifest, LoadError> {
    let key = name.object(MANIFEST_FILE);
    let bytes = artifacts.size(&key).await.map_err(unavailable)?;
    let bytes = bytes.ok_or(LoadError::NotFound)?;
    if bytes > MANIFEST_BYTES_MAX {
        return Err(too_long(MANIFEST_FILE, bytes, MANIFEST_BYTES_MAX));
    }
    let manifest = read_object(artifacts, &key, bytes).await?;
    let manifest = manifest.ok_or(LoadError::NotFound)?;
    if !name.has_manifest(&manifest) {
        return Err(invalid(
            MANIFEST_FILE,
            format!(
                "{MANIFEST_FILE} is not the one that the name of the package was made for. Publish the package again."
            ),
        ));
    }
    Manifest::parse(&manifest).map_err(|reason| invalid(MANIFEST_FILE, reason))
}

/// Reads a package file. Its size in the artifact store must be that in the manifest.
async fn read_file(
    artifacts: &Artifacts,
    name: &PackageName,
    file: &ManifestFile,
) -> Result<Vec<u8>, LoadError> {
    let key = name.object(&file.name);
    let stored = artifacts.size(&key).await.map_err(unavailable)?;
    if stored != Some(file.bytes) {
        let reason = match stored {
            None => format!("{} is missing. Publish the package again.", file.name),
            Some(stored) => format!(
                "{} has {stored} bytes, but {MANIFEST_FILE} names {}. Publish the package again.",
                file.name, file.bytes
            ),
        };
        return Err(invalid(&file.name, reason));
    }
    read_object(artifacts, &key, file.bytes)
        .await?
        .ok_or_else(|| {
            let reason = format!("{} is missing. Publish the package again.", file.name);
            invalid(&file.name, reason)
        })
}

/// Reads an object with this size in ranges. Returns `None` if it does not exist.
async fn read_object(
    artifacts: &Artifacts,
    key: &str,
    bytes: u64,
) -> Result<Option<Vec<u8>>, LoadError> {
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    for range in windows(bytes) {
        match artifacts.get_range(key, range).await.map_err(unavailable)? {
            Some(read) => content.extend_from_slice(&read),
            None => return Ok(None),
        }
    }
    Ok(Some(content))
}

async fn verified(file: &ManifestFile, content: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    let file = file.clone();
    blocking(move || match file.verify(&content) {
        Ok(()) => Ok(content),
        Err(reason) => Err(invalid(&file.name, reason)),
    })
    .await
}

/// Runs a computation outside the network's threads.
async fn blocking<T: Send + 'static>(
    compute: impl FnOnce() -> Result<T, LoadError> + Send + 'static,
) -> Result<T, LoadError> {
    tokio::task::spawn_blocking(compute)
        .await
        .unwrap_or(Err(LoadError::Internal))
}

fn unavailable(error: Error) -> LoadError {
    LoadError::Unavailable(error.log_text())
}

fn invalid(file: &str, reason: String) -> LoadError {
    LoadError::Invalid {
        reason,
        place: format!("{file} is not valid"),
    }
}

fn invalid_package(error: &PackageError) -> LoadError {
    let line = error
        .line
        .map_or_else(String::new, |line| format!(" line {line}"));
    LoadError::Invalid {
        reason: error.to_string(),
        place: format!("{}{line} is not valid", error.file.name()),
    }
}

fn too_long(file: &str, bytes: u64, max: u64) -> LoadError {
    invalid(
        file,
        format!("{file} has {bytes} bytes, and {max} are allowed."),
    )
}

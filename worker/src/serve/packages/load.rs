//! Reading a package from the artifact store. A package is untrusted input: the names of its files
//! are fixed, their sizes are compared before memory is allocated, and their digests before they are
//! read.

use assay_core::model::error::Error;
use assay_core::model::package::{
    ITEMS_FILE, MANIFEST_BYTES_MAX, MANIFEST_FILE, MODEL_FILE, Manifest, ManifestFile, PackageName,
    WEIGHTS_FILE,
};
use assay_core::runtime::artifacts::{Artifacts, windows};
use assay_engine::{
    MODEL_BYTES_MAX, Model, ModelSpec, PackageError, PackageFiles, weights_bytes_max,
};

use super::{LoadError, Package, Packages, Reservation};
use crate::serve::compute::Times;

/// The files that the engine reads, verified.
struct Files {
    model: Vec<u8>,
    weights: Vec<u8>,
    items: Option<Vec<u8>>,
}

/// Reads a package. The reservation is for the memory of its files.
pub(super) async fn load(
    packages: &Packages,
    name: &PackageName,
) -> Result<(Package, Reservation), LoadError> {
    let artifacts = &packages.artifacts;
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
    let sizes = [
        model.bytes,
        weights.bytes,
        items.map_or(0, |items| items.bytes),
    ];
    let bytes = sizes.into_iter().fold(0, u64::saturating_add);
    let reservation = packages.reserve(bytes)?;
    let model = verified(model, read_file(artifacts, name, model).await?).await?;
    let spec = ModelSpec::parse(&model).map_err(|error| invalid_package(&error))?;
    if weights.bytes > weights_bytes_max(&spec) {
        return Err(too_long(
            WEIGHTS_FILE,
            weights.bytes,
            weights_bytes_max(&spec),
        ));
    }
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

/// Reads a file of a package. Its size in the artifact store must be that in the manifest.
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

/// Reads an object of this size in ranges. Returns `None` if it does not exist.
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

/// Runs a computation outside of the threads of the network.
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

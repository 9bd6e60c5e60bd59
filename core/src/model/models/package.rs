//! Package names and manifests in the artifact store.
//!
//! A package is an object folder under one prefix, its name. The name contains the manifest's
//! digest, and the manifest has all files' digests, so a name identifies the content.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::model::catalog::is_id;
use crate::model::ids::{OrgId, is_version};

/// The model card and the object `serving`.
pub const MODEL_FILE: &str = "model.json";

/// The weights, for the embedded engine only.
pub const WEIGHTS_FILE: &str = "weights.safetensors";

/// The item table. Absent if no tokenizer is fitted.
pub const ITEMS_FILE: &str = "items.ndjson";

/// Requests and their responses.
pub const GOLDEN_FILE: &str = "golden.json";

/// The other files, as a list.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Maximum size of a manifest, in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 4096;

/// Hexadecimal digits of a manifest's digest in a package's name.
const DIGEST_DIGITS: usize = 16;

/// A package's name: its objects' prefix in the artifact store, as in
/// `models/next-1/3/0123456789abcdef`. It is safe as a path: it has no `..` and no empty segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PackageName {
    org_id: Option<OrgId>,
    model_id: String,
    version: String,
    digest: String,
}

/// The string is not a package's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a package")]
pub struct MalformedPackageName;

impl PackageName {
    /// Creates the name for a package with this manifest: the platform's, or an organization's.
    pub fn new(
        org_id: Option<OrgId>,
        model_id: &str,
        version: &str,
        manifest: &[u8],
    ) -> Result<Self, MalformedPackageName> {
        let name = Self {
            org_id,
            model_id: model_id.to_owned(),
            version: version.to_owned(),
            digest: manifest_digest(manifest),
        };
        match is_model_id(&name.model_id) && is_model_version(&name.version) {
            true => Ok(name),
            false => Err(MalformedPackageName),
        }
    }

    /// Returns the model's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the name of the object with a package file.
    pub fn object(&self, file: &str) -> String {
        format!("{self}/{file}")
    }

    /// Returns `true` if these bytes are the manifest that the name was made for.
    pub fn has_manifest(&self, manifest: &[u8]) -> bool {
        self.digest == manifest_digest(manifest)
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(org_id) = &self.org_id {
            write!(f, "orgs/{org_id}/")?;
        }
        let Self {
            model_id,
            version,
            digest,
            ..
        } = self;
        write!(f, "models/{model_id}/{version}/{digest}")
    }
}

impl FromStr for PackageName {
    type Err = MalformedPackageName;

    fn from_str(text: &str) -> Result<Self, MalformedPackageName> {
        let mut segments = text.split('/');
        let mut next = || segments.next().ok_or(MalformedPackageName);
        let mut first = next()?;
        let org_id = match first {
            "orgs" => Some(next()?.parse().map_err(|_| MalformedPackageName)?),
            _ => None,
        };
        if org_id.is_some() {
            first = next()?;
        }
        let (model_id, version, digest) = (next()?, next()?, next()?);
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_valid = first == "models"
            && is_model_id(model_id)
            && is_model_version(version)
            && digest.len() == DIGEST_DIGITS
            && digest.bytes().all(is_digit)
            && segments.next().is_none();
        if !is_valid {
            return Err(MalformedPackageName);
        }
        Ok(Self {
            org_id,
            model_id: model_id.to_owned(),
            version: version.to_owned(),
            digest: digest.to_owned(),
        })
    }
}

/// Returns the prefix for all packages of an organization.
pub fn org_prefix(org_id: &OrgId) -> String {
    format!("orgs/{org_id}")
}

/// Returns `true` if an object in the artifact store is a package file.
pub fn is_file(key: &str) -> bool {
    key.rsplit_once('/')
        .is_some_and(|(name, _)| name.parse::<PackageName>().is_ok())
}

/// Returns `true` if the string is a model's id and no special path segment.
fn is_model_id(text: &str) -> bool {
    is_id(text) && !is_dots(text)
}

fn is_model_version(text: &str) -> bool {
    is_version(text) && !is_dots(text)
}

/// Returns `true` for `.` and `..`, which are not names in a path.
fn is_dots(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'.')
}

fn manifest_digest(manifest: &[u8]) -> String {
    let mut digest = hex_sha256(manifest);
    digest.truncate(DIGEST_DIGITS);
    digest
}

/// Returns these bytes' SHA-256, in lower-case hexadecimal digits.
pub fn hex_sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A package's files except the manifest itself, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The files.
    pub files: Vec<ManifestFile>,
}

/// A package file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// The file's name.
    pub name: String,
    /// The file's size in bytes.
    pub bytes: u64,
    /// The file's SHA-256, in lower-case hexadecimal digits.
    pub sha256: String,
}

impl Manifest {
    /// Creates these files' manifest, each with its name and its content.
    pub fn of<'f>(files: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Self {
        let mut files: Vec<ManifestFile> = files
            .into_iter()
            .map(|(name, content)| ManifestFile {
                name: name.to_owned(),
                bytes: content.len() as u64,
                sha256: hex_sha256(content),
            })
            .collect();
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Self { files }
    }

    /// Reads a manifest. Returns a sentence if it is not valid.
    ///
    /// # Errors
    /// If it is no manifest, repeats a file, or names one that packages do not have.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(json)
            .map_err(|error| format!("{MANIFEST_FILE} is not valid: {error}."))?;
        let allowed = [MODEL_FILE, WEIGHTS_FILE, ITEMS_FILE, GOLDEN_FILE];
        for (index, file) in manifest.files.iter().enumerate() {
            if !allowed.contains(&file.name.as_str()) {
                return Err(format!(
                    "{MANIFEST_FILE} names a file that packages do not have. They have {}.",
                    allowed.join(", ")
                ));
            }
            if manifest.files[..index]
                .iter()
                .any(|other| other.name == file.name)
            {
                return Err(format!("{MANIFEST_FILE} names {} twice.", file.name));
            }
        }
        Ok(manifest)
    }

    /// Returns a file's entry.
    pub fn file(&self, name: &str) -> Option<&ManifestFile> {
        self.files.iter().find(|file| file.name == name)
    }
}

impl ManifestFile {
    /// Checks the file's content. Returns a sentence if it is not the content in the manifest.
    ///
    /// # Errors
    /// If the size or the SHA-256 is another.
    pub fn verify(&self, content: &[u8]) -> Result<(), String> {
        let Self {
            name,
            bytes,
            sha256,
        } = self;
        if content.len() as u64 != *bytes {
            let length = content.len();
            return Err(format!(
                "{name} has {length} bytes, but {MANIFEST_FILE} names {bytes}. Publish the package again."
            ));
        }
        if hex_sha256(content) != *sha256 {
            return Err(format!(
                "The SHA-256 of {name} is not that of {MANIFEST_FILE}. Publish the package again."
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let manifest = serde_json::to_vec(&Manifest::of([(MODEL_FILE, &b"{}"[..])])).unwrap();
        let name = PackageName::new(None, "next-1", "3", &manifest).unwrap();
        assert!(name.has_manifest(&manifest) && !name.has_manifest(b"{}"));
        let text = name.to_string();
        assert!(text.starts_with("models/next-1/3/"), "{text}");
        assert_eq!(text.parse(), Ok(name.clone()));
        let org_id = OrgId::random().unwrap();
        let adapted = PackageName::new(Some(org_id.clone()), "next-1", "3", &manifest).unwrap();
        assert_eq!(adapted.to_string(), format!("orgs/{org_id}/{text}"));
        assert_eq!(adapted.to_string().parse(), Ok(adapted.clone()));
        assert_ne!(adapted, name);
        assert_eq!(adapted.version(), "3");
        assert_eq!(name.object(MODEL_FILE), format!("{text}/model.json"));
    }

    #[test]
    fn other_names_are_rejected() {
        let digest = "0123456789abcdef";
        for name in [
            String::new(),
            format!("models/a/1/{digest}/x"),
            format!("/models/a/1/{digest}"),
            format!("models/../1/{digest}"),
            format!("models/a/../{digest}"),
            format!("models/a/./{digest}"),
            format!("models//1/{digest}"),
            format!("models/a b/1/{digest}"),
            format!("models/a%2F/1/{digest}"),
            format!("models/a/1/{}", &digest[1..]),
            format!("models/a/1/{}", digest.to_uppercase()),
            String::from("models/a/1/.."),
            format!("orgs/../models/a/1/{digest}"),
            format!("orgs//models/a/1/{digest}"),
            format!("orgs/org_1/orgs/org_1/models/a/1/{digest}"),
            format!("org_1/job/a/1/{digest}"),
        ] {
            assert_eq!(
                name.parse::<PackageName>(),
                Err(MalformedPackageName),
                "{name}"
            );
        }
    }

    #[test]
    fn manifest_verifies_files() {
        let manifest = Manifest::of([(WEIGHTS_FILE, &b"abc"[..]), (MODEL_FILE, b"{}")]);
        let names: Vec<&str> = manifest
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert_eq!(names, [MODEL_FILE, WEIGHTS_FILE]);
        let read = Manifest::parse(&serde_json::to_vec(&manifest).unwrap());
        assert_eq!(read, Ok(manifest.clone()));
        let weights = manifest.file(WEIGHTS_FILE).unwrap();
        assert_eq!(weights.verify(b"abc"), Ok(()));
        assert!(weights.verify(b"abd").unwrap_err().contains("SHA-256"));
        assert!(weights.verify(b"ab").unwrap_err().contains("has 2 bytes"));
        assert_eq!(manifest.file(ITEMS_FILE), None);
    }

    #[test]
    fn invalid_manifests_are_rejected() {
        let file = |name: &str| format!(r#"{{"name": "{name}", "bytes": 1, "sha256": ""}}"#);
        for (json, what) in [
            (String::from("{"), "is not valid"),
            (
                String::from(r#"{"files": [{"name": "model.json", "bytes": -1}]}"#),
                "is not valid",
            ),
            (
                format!(r#"{{"files": [{}]}}"#, file("../x")),
                "packages do not have",
            ),
            (
                format!(r#"{{"files": [{}]}}"#, file("manifest.json")),
                "packages do not have",
            ),
            (
                format!(r#"{{"files": [{0}, {0}]}}"#, file("model.json")),
                "model.json twice",
            ),
        ] {
            let error = Manifest::parse(json.as_bytes()).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}

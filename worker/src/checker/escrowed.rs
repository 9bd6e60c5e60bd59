//! The files of a draft, as the escrow has them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use assay_core::model::draft::{DEFINITION, MANIFEST, ManifestFile, OPENING_KEY, definition_hmac};
use assay_core::store::PgConnection;
use assay_core::store::draft_check::ClaimedDraft;
use assay_core::store::escrow::{self, ChunkPlace};
use assay_core::{Error, Result};
use assay_eval::content::{self, ContentError, ReadEnd};
use assay_eval::suite::{BadSuite, BadSuiteCode};
use sha2::{Digest as _, Sha256};

/// The files of a draft.
pub struct Escrowed {
    /// The secret of the publication.
    pub opening_key: [u8; 32],
    /// The files by name, decompressed, with `suite.toml`.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Reads the files of a draft, with at most `bytes_max` decompressed bytes.
///
/// # Errors
/// If the escrow has no definition with the draft's keyed hash, which no API process can cause but one that was changed. Inside, the
/// errors of files.
pub async fn read(
    db: &mut PgConnection,
    draft: &ClaimedDraft,
    bytes_max: u64,
) -> Result<std::result::Result<Escrowed, Vec<BadSuite>>> {
    let (opening_key, definition) = definition(db, draft).await?;
    let Some(manifest_id) = &draft.manifest_id else {
        return Err(Error::internal(
            "a draft that is checked has no list of files",
        ));
    };
    let manifest = part(db, draft, MANIFEST, manifest_id).await?;
    let manifest: Vec<ManifestFile> = serde_json::from_slice(&manifest).map_err(Error::internal)?;
    let mut files = BTreeMap::new();
    let mut errors = Vec::new();
    let mut rest = bytes_max.saturating_sub(definition.len() as u64);
    for file in manifest {
        let mut sent = Vec::new();
        for part_id in &file.parts {
            sent.extend(part(db, draft, &file.name, part_id).await?);
            if sent.len() as u64 > rest {
                break;
            }
        }
        let name = file.name.clone();
        let max = rest;
        let decompressed = tokio::task::spawn_blocking(move || decompress(&file, &sent, max)).await;
        match decompressed.map_err(Error::internal)? {
            Ok(content) => {
                rest -= content.len() as u64;
                files.insert(name, content);
            }
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Ok(Err(errors));
    }
    files.insert(DEFINITION.to_owned(), definition);
    Ok(Ok(Escrowed { opening_key, files }))
}

/// Returns the opening key and the definition. Among the rows of the escrow, those count whose keyed hash is that of the draft.
async fn definition(db: &mut PgConnection, draft: &ClaimedDraft) -> Result<([u8; 32], Vec<u8>)> {
    let (org_id, draft_id) = (&draft.org_id, &draft.id);
    let keys = escrow::rows_named(db, org_id, draft_id, OPENING_KEY).await?;
    let definitions = escrow::rows_named(db, org_id, draft_id, DEFINITION).await?;
    for (_, key) in &keys {
        let Ok(key) = key.as_slice().try_into() else {
            continue;
        };
        for (_, definition) in &definitions {
            if definition_hmac(&key, definition) == draft.definition_hmac {
                return Ok((key, definition.clone()));
            }
        }
    }
    Err(Error::internal(
        "the escrow has no definition with the keyed hash of the draft",
    ))
}

/// Reads all chunks of a part.
async fn part(
    db: &mut PgConnection,
    draft: &ClaimedDraft,
    name: &str,
    part_id: &str,
) -> Result<Vec<u8>> {
    let place = ChunkPlace {
        draft_id: &draft.id,
        name,
        part_id,
        definition_hmac: &draft.definition_hmac,
    };
    let mut all = Vec::new();
    let mut seq = 0;
    while let Some(chunk) = escrow::chunk(db, &draft.org_id, place, seq).await? {
        all.extend(chunk);
        seq += 1;
    }
    if seq == 0 {
        return Err(Error::internal("the escrow has no chunk of a part"));
    }
    Ok(all)
}

/// Compares the digest of a file with the one that was given, and decompresses it.
fn decompress(
    file: &ManifestFile,
    sent: &[u8],
    bytes_max: u64,
) -> std::result::Result<Vec<u8>, BadSuite> {
    let bad = |code, message: &str| BadSuite::new(&file.name, 0, message).with_code(code);
    let too_large = || {
        bad(
            BadSuiteCode::TooLong,
            "is larger than the plan allows (limit suite_bytes), or than a check can read",
        )
    };
    if sent.len() as u64 > bytes_max {
        return Err(too_large());
    }
    if let Some(expected) = &file.sha256
        && hex::encode(Sha256::digest(sent)) != *expected
    {
        return Err(bad(
            BadSuiteCode::Value,
            "has another SHA-256 than the one that was given; send it again",
        ));
    }
    let (reader, mut format) = content::open(sent, &file.name)
        .map_err(|_| bad(BadSuiteCode::Encoding, "cannot be read"))?;
    format.bytes_max = bytes_max;
    let mut content = Vec::new();
    let end = content::read_pieces::<()>(reader, format, |piece| {
        content.extend_from_slice(piece);
        ControlFlow::Continue(())
    });
    match end {
        ReadEnd::Complete | ReadEnd::Stopped(()) => Ok(content),
        ReadEnd::Invalid(ContentError::TooLarge) => Err(too_large()),
        ReadEnd::Invalid(ContentError::Compression) => Err(bad(
            BadSuiteCode::Encoding,
            "has an invalid compression, or is truncated; send it again",
        )),
    }
}

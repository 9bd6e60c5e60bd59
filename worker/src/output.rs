//! An attempt's output for a prediction job, as it is written to the artifact store.

use std::borrow::Cow;

use assay_core::model::ids::{OrgId, UploadId};
use assay_core::model::upload::{self, PART_MAX, PartObject};
use assay_core::runtime::artifacts::{Artifacts, Writer};
use assay_core::store::work::{Output, OutputPart};
use assay_core::{Error, Result};
use assay_eval::prediction::{Prediction, SubmissionDigest, Value};
use sha2::{Digest as _, Sha256};

/// An output that is complete.
pub struct FinishedOutput {
    /// The parts and the digest.
    pub output: Output,
    /// The size, in bytes.
    pub bytes: i64,
    /// The SHA-256, 64 lower-case hex digits.
    pub sha256: String,
}

/// Writes an output in parts, whose names have the attempt number: another attempt writes
/// other objects.
pub struct OutputWriter<'a> {
    artifacts: &'a Artifacts,
    org_id: &'a OrgId,
    upload_id: &'a UploadId,
    attempt: i32,
    /// The part that is being written.
    part: Option<OpenPart>,
    parts: Vec<OutputPart>,
    bytes: u64,
    hash: Sha256,
    digest: SubmissionDigest,
    n_lines: usize,
}

struct OpenPart {
    object_key: String,
    writer: Writer,
    bytes: u64,
    hash: Sha256,
}

impl<'a> OutputWriter<'a> {
    /// Creates an empty output's writer.
    pub fn new(
        artifacts: &'a Artifacts,
        org_id: &'a OrgId,
        upload_id: &'a UploadId,
        attempt: i32,
    ) -> Self {
        Self {
            artifacts,
            org_id,
            upload_id,
            attempt,
            part: None,
            parts: Vec::new(),
            bytes: 0,
            hash: Sha256::new(),
            digest: SubmissionDigest::default(),
            n_lines: 0,
        }
    }

    /// Adds the next line's prediction to the digest: its ranking, or `None` if it failed. The
    /// digest is the one that an upload with these lines would have.
    pub fn add_to_digest(&mut self, id: &str, item_ids: Option<&[String]>) {
        let ids: Vec<Cow<'_, str>> = item_ids
            .unwrap_or_default()
            .iter()
            .map(|id| Cow::Borrowed(id.as_str()))
            .collect();
        let value = match item_ids {
            Some(_) => Value::Ranking(&ids),
            None => Value::Failed,
        };
        self.digest.add(&Prediction {
            index: self.n_lines,
            line: Some(self.n_lines + 1),
            item_id: Cow::Borrowed(id),
            value,
        });
        self.n_lines += 1;
    }

    /// Writes whole lines, at most [`PART_MAX`] bytes.
    pub async fn write(&mut self, lines: &[u8]) -> Result<()> {
        let is_full = |part: &OpenPart| part.bytes + lines.len() as u64 > PART_MAX;
        if self.part.as_ref().is_some_and(is_full) {
            self.finish_part().await?;
        }
        let part = match &mut self.part {
            Some(part) => part,
            none => {
                let number = i32::try_from(self.parts.len() + 1).map_err(Error::internal)?;
                let object_key =
                    upload::output_key(self.org_id, self.upload_id, number, self.attempt);
                none.insert(OpenPart {
                    writer: self.artifacts.writer(&object_key),
                    object_key,
                    bytes: 0,
                    hash: Sha256::new(),
                })
            }
        };
        part.bytes += lines.len() as u64;
        part.hash.update(lines);
        self.bytes += lines.len() as u64;
        self.hash.update(lines);
        part.writer.write(lines).await
    }

    async fn finish_part(&mut self) -> Result<()> {
        let Some(part) = self.part.take() else {
            return Ok(());
        };
        part.writer.finish().await?;
        self.parts.push(OutputPart {
            object: PartObject {
                number: i32::try_from(self.parts.len() + 1).map_err(Error::internal)?,
                object_key: part.object_key,
                bytes: i64::try_from(part.bytes).map_err(Error::internal)?,
            },
            sha256: hex::encode(part.hash.finalize()),
        });
        Ok(())
    }

    /// Finishes the last part.
    pub async fn finish(mut self) -> Result<FinishedOutput> {
        self.finish_part().await?;
        Ok(FinishedOutput {
            output: Output {
                parts: self.parts,
                digest: self.digest.finish(),
            },
            bytes: i64::try_from(self.bytes).map_err(Error::internal)?,
            sha256: hex::encode(self.hash.finalize()),
        })
    }
}

#[cfg(test)]
mod tests {
    use assay_eval::prediction::{PredictionRules, check};

    use super::*;

    #[tokio::test]
    async fn output_is_divided_into_parts() {
        let folder = std::env::temp_dir().join(format!("assay-output-{}", std::process::id()));
        let artifacts = Artifacts::create(folder.to_str().unwrap()).await.unwrap();
        let (org_id, upload_id) = (OrgId::random().unwrap(), UploadId::random().unwrap());
        let mut writer = OutputWriter::new(&artifacts, &org_id, &upload_id, 3);
        let lines = vec![b'x'; 20 << 20];
        let mut whole = Sha256::new();
        for _ in 0..4 {
            writer.write(&lines).await.unwrap();
            whole.update(&lines);
        }
        let FinishedOutput {
            output,
            bytes,
            sha256,
        } = writer.finish().await.unwrap();
        let parts: Vec<_> = output
            .parts
            .iter()
            .map(|part| (part.object.number, part.object.bytes >> 20))
            .collect();
        assert_eq!((parts, bytes >> 20), (vec![(1, 60), (2, 20)], 80));
        assert_eq!(sha256, hex::encode(whole.finalize()));
        for part in &output.parts {
            assert!(upload::is_output_of(&part.object.object_key, 3));
            let size = artifacts.size(&part.object.object_key).await.unwrap();
            assert_eq!(size, Some(part.object.bytes.unsigned_abs()));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn digest_equals_that_of_submitted_lines() {
        let folder = std::env::temp_dir().join(format!("assay-digest-{}", std::process::id()));
        let artifacts = Artifacts::create(folder.to_str().unwrap()).await.unwrap();
        let (org_id, upload_id) = (OrgId::random().unwrap(), UploadId::random().unwrap());
        let mut writer = OutputWriter::new(&artifacts, &org_id, &upload_id, 1);
        writer.add_to_digest("a", Some(&["x".into(), "ä".into()]));
        writer.add_to_digest("b", None);
        writer.write(b"\n").await.unwrap();
        let submitted = r#"[{"item_id":"a","prediction":["x","ä"],"scores":[-0.5,null]},{"item_id":"b","error":{"code":"x"}}]"#;
        let rules = PredictionRules::published("accuracy", &[]).unwrap();
        let expected = check(submitted.as_bytes(), &rules).unwrap().digest;
        assert_eq!(writer.finish().await.unwrap().output.digest, expected);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

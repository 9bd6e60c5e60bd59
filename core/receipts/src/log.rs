//! The transparency log for its readers: checkpoints (C2SP tlog-checkpoint and signed-note), and
//! proofs that an entry is in a checkpoint's tree (C2SP tlog-proof).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use signed_note::{
    Note, Signer as _, StandardSigner, StandardVerifier, Verifier as _, VerifierList,
};
use tlog_tiles::{Checkpoint, Hash, check_record, record_hash};

/// A proof's first line.
const PROOF_HEADER: &str = "c2sp.org/tlog-proof@v1";

/// A log's private keys. During a rotation there are two, and both sign.
pub struct LogKeys {
    signers: Vec<StandardSigner>,
    verifier_keys: Vec<String>,
}

impl LogKeys {
    /// Reads private keys in signed-note's format (`PRIVATE+KEY+…`), separated by commas. Their
    /// name is the log's origin.
    ///
    /// # Errors
    /// If a key is malformed or has another name. The message does not repeat the key.
    pub fn parse(keys: &str, origin: &str) -> Result<Self, String> {
        let mut signers = Vec::new();
        let mut verifier_keys = Vec::new();
        for key in keys.split(',').map(str::trim) {
            let signer = StandardSigner::new(key)
                .map_err(|_| "must be a private key such as `assay-api log keygen` prints")?;
            if signer.name() != origin {
                return Err(format!(
                    "is a key of {:?}, but the origin of the log is {origin:?}",
                    signer.name()
                ));
            }
            verifier_keys.push(verifier_key(key, &signer).ok_or("is not an Ed25519 key")?);
            signers.push(signer);
        }
        Ok(Self {
            signers,
            verifier_keys,
        })
    }

    /// Returns the keys with which others verify checkpoints.
    pub fn verifier_keys(&self) -> &[String] {
        &self.verifier_keys
    }

    /// Returns a tree's signed checkpoint.
    ///
    /// # Errors
    /// If the origin is not a valid name.
    pub fn sign(&self, origin: &str, size: u64, root: Hash) -> Result<String, String> {
        let checkpoint =
            Checkpoint::new(origin, size, root, "").map_err(|error| error.to_string())?;
        let mut note = Note::new(&checkpoint.to_bytes(), &[]).map_err(|error| error.to_string())?;
        let signers: Vec<&dyn signed_note::Signer> = self
            .signers
            .iter()
            .map(|signer| signer as &dyn signed_note::Signer)
            .collect();
        note.add_sigs(&signers).map_err(|error| error.to_string())?;
        String::from_utf8(note.to_bytes()).map_err(|error| error.to_string())
    }
}

/// Returns a private key's verifier key.
fn verifier_key(key: &str, signer: &StandardSigner) -> Option<String> {
    // The fifth field has the algorithm and 32 secret bytes. It may contain the separator.
    let encoded = STANDARD.decode(key.splitn(5, '+').nth(4)?).ok()?;
    let secret = encoded.strip_prefix(&[ED25519])?.try_into().ok()?;
    let public = ed25519_dalek::SigningKey::from_bytes(secret).verifying_key();
    let public = STANDARD.encode([&[ED25519], public.as_bytes().as_slice()].concat());
    Some(format!(
        "{}+{:08x}+{public}",
        signer.name(),
        signer.key_id()
    ))
}

/// The algorithm's number in signed-note keys.
const ED25519: u8 = 1;

/// Creates a private key with this name from 32 random bytes. Returns it with its verifier key.
///
/// # Errors
/// If the name is empty, or contains a space or a plus sign.
pub fn new_key(name: &str, secret: &[u8; 32]) -> Result<(String, String), String> {
    if !signed_note::is_key_name_valid(name) {
        return Err("the origin must not be empty, and contain neither spaces nor +".into());
    }
    let public = ed25519_dalek::SigningKey::from_bytes(secret).verifying_key();
    let public = [&[ED25519], public.as_bytes().as_slice()].concat();
    let id = signed_note::key_id(name, &public);
    let secret = STANDARD.encode([&[ED25519], secret.as_slice()].concat());
    Ok((
        format!("PRIVATE+KEY+{name}+{id:08x}+{secret}"),
        format!("{name}+{id:08x}+{}", STANDARD.encode(public)),
    ))
}

/// A checkpoint whose signatures are not verified yet.
pub struct SignedCheckpoint {
    /// The tree and the signatures.
    text: String,
    /// The origin, the tree's size and root.
    pub tree: Checkpoint,
}

impl SignedCheckpoint {
    /// Parses a signed checkpoint.
    ///
    /// # Errors
    /// The reason, for a receipt's reader.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (signed, _) = text
            .rsplit_once("\n\n")
            .ok_or("the checkpoint has no signatures")?;
        let signed = format!("{signed}\n");
        let tree = Checkpoint::from_bytes(signed.as_bytes())
            .map_err(|_| "the checkpoint does not consist of an origin, a size and a root")?;
        if tree.to_bytes() != signed.as_bytes() || !tree.extension().is_empty() {
            return Err("the checkpoint is not in its canonical form".into());
        }
        Ok(Self {
            text: text.into(),
            tree,
        })
    }

    /// Returns the checkpoint's text with its signatures.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks that the pinned key signed the checkpoint, and that its name is the origin.
    ///
    /// # Errors
    /// The reason why it did not.
    pub fn check_signature(&self, verifier_key: &str) -> Result<(), String> {
        let verifier = StandardVerifier::new(verifier_key)
            .map_err(|error| format!("the log key is invalid: {error}"))?;
        if verifier.name() != self.tree.origin() {
            return Err(format!(
                "the origin is {:?}, but the log key is of {:?}",
                self.tree.origin(),
                verifier.name()
            ));
        }
        let note = Note::from_bytes(self.text.as_bytes())
            .map_err(|_| "a signature of the checkpoint is malformed")?;
        if note.to_bytes() != self.text.as_bytes() {
            return Err("the checkpoint is not in its canonical form".into());
        }
        note.verify(&VerifierList::new(vec![Box::new(verifier)]))
            .map(drop)
            .map_err(|_| "the log key did not sign the checkpoint".into())
    }
}

/// A proof that an entry is in a checkpoint's tree.
pub struct Proof {
    /// The entry's index, from 0.
    pub index: u64,
    /// The hashes on the path from the leaf to the root.
    pub path: Vec<Hash>,
    /// The signed checkpoint.
    pub checkpoint: String,
}

impl Proof {
    /// Parses a proof's text.
    ///
    /// # Errors
    /// The reason, for a receipt's reader.
    pub fn parse(text: &str) -> Result<Self, String> {
        let malformed = || String::from("the proof is not a c2sp.org/tlog-proof@v1");
        let (head, checkpoint) = text.split_once("\n\n").ok_or_else(malformed)?;
        let mut lines = head.split('\n');
        if lines.next() != Some(PROOF_HEADER) {
            return Err(malformed());
        }
        let index_text = lines
            .next()
            .and_then(|line| line.strip_prefix("index "))
            .ok_or_else(malformed)?;
        let index: u64 = index_text.parse().map_err(|_| malformed())?;
        if index.to_string() != index_text {
            return Err(malformed());
        }
        let path = lines
            .map(|line| Hash::parse_hash(line).map_err(|_| malformed()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            index,
            path,
            checkpoint: checkpoint.into(),
        })
    }

    /// Returns the proof's text.
    pub fn to_text(&self) -> String {
        let mut text = format!("{PROOF_HEADER}\nindex {}\n", self.index);
        for hash in &self.path {
            text += &format!("{hash}\n");
        }
        text + "\n" + &self.checkpoint
    }

    /// Checks that the path leads from this entry to a tree's root.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self, entry: &[u8; 32], tree: &Checkpoint) -> Result<(), String> {
        let leaf = record_hash(entry);
        check_record(&self.path, tree.size(), *tree.hash(), self.index, leaf)
            .map_err(|_| "the proof does not lead to the root of the checkpoint".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_another_library_are_read() {
        // From the documentation for golang.org/x/mod/sumdb/note.
        let private =
            "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
        let keys = LogKeys::parse(private, "PeterNeumann").unwrap();
        assert_eq!(
            keys.verifier_keys(),
            ["PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"]
        );
        let error = LogKeys::parse(private, "other").err().unwrap();
        assert!(error.contains("a key of \"PeterNeumann\""), "{error}");
        assert!(LogKeys::parse("PRIVATE+KEY+a+b+c", "a").is_err());
    }

    #[test]
    fn each_changed_byte_of_a_checkpoint_is_detected() {
        let (private, public) = new_key("assay.example/log", &[5; 32]).unwrap();
        let keys = LogKeys::parse(&private, "assay.example/log").unwrap();
        assert_eq!(keys.verifier_keys(), std::slice::from_ref(&public));
        let text = keys
            .sign("assay.example/log", 7, record_hash(b"x"))
            .unwrap();
        let check = |text: &str| SignedCheckpoint::parse(text)?.check_signature(&public);
        check(&text).unwrap();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'1' { b'2' } else { b'1' };
            if let Ok(changed) = String::from_utf8(changed) {
                assert!(check(&changed).is_err(), "{at}: {changed}");
            }
        }
        check(&format!("{text}\n")).unwrap_err();
        check(&text.replace('\n', "\r\n")).unwrap_err();
        let (_, other) = new_key("assay.example/log", &[6; 32]).unwrap();
        let parsed = SignedCheckpoint::parse(&text).unwrap();
        assert!(
            parsed
                .check_signature(&other)
                .unwrap_err()
                .contains("did not sign")
        );
        let (_, other) = new_key("other.example/log", &[5; 32]).unwrap();
        assert!(
            parsed
                .check_signature(&other)
                .unwrap_err()
                .contains("the origin is")
        );
    }

    #[test]
    fn rotated_log_key_is_accepted_with_two_signatures() {
        let origin = "assay.example/log";
        let (old, old_public) = new_key(origin, &[5; 32]).unwrap();
        let (new, new_public) = new_key(origin, &[6; 32]).unwrap();
        let keys = LogKeys::parse(&format!("{old},{new}"), origin).unwrap();
        let text = keys.sign(origin, 1, record_hash(b"x")).unwrap();
        let parsed = SignedCheckpoint::parse(&text).unwrap();
        parsed.check_signature(&old_public).unwrap();
        parsed.check_signature(&new_public).unwrap();
    }
}

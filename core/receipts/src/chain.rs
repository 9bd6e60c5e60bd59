//! The receipt key chain. The log's first entry introduces the first key, which signs itself.
//! A valid key in the chain introduces each later one, and signs each revocation.
//!
//! So the log's key, which the reader pins, also pins the receipt keys: a process that writes to
//! the platform's database without a receipt key can neither add one nor revoke one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::jws::Jws;
use crate::keys::{Jwk, JwkSet, LoggedChange};
use crate::logged::Logged;
use crate::statement::{KEY, KeyAction, KeyChange, STATEMENT_TYPE, Statement};

/// Checks that a key belongs to the log's chain with this key, and that its revocation, if it has
/// one, was signed by another key in the chain.
///
/// # Errors
/// The reason why it does not, or was not.
pub fn check(keys: &JwkSet, kid: &str, log_key: &str) -> Result<(), String> {
    let chain = Chain { keys, log_key };
    chain.check_introduction(kid, None)?;
    let (jwk, _) = keys.find(kid)?;
    match (jwk.revoked_at_index, &jwk.revocation) {
        (None, None) => Ok(()),
        (Some(index), Some(revocation)) => chain.check_revocation(jwk, index, revocation),
        (Some(_), None) => Err(format!("the revocation of the key {kid} is not signed")),
        (None, Some(_)) => Err(format!(
            "the key {kid} has a revocation without revoked_at_index"
        )),
    }
}

struct Chain<'a> {
    keys: &'a JwkSet,
    log_key: &'a str,
}

impl Chain<'_> {
    /// Checks how a key and those that lead to it are introduced. Each index is smaller than the
    /// next one, `before`, so the chain ends.
    fn check_introduction(&self, kid: &str, before: Option<u64>) -> Result<(), String> {
        let (jwk, _) = self.keys.find(kid)?;
        let introduction = jwk
            .introduction
            .as_ref()
            .ok_or_else(|| format!("nothing introduces the key {kid}; fetch the keys again"))?;
        let (signer, index) = self.check_change(jwk, KeyAction::Added, introduction, None)?;
        if before.is_some_and(|before| index >= before) {
            return Err(format!(
                "the key {kid} was introduced at index {index}, after it signed a change"
            ));
        }
        if signer != kid {
            return self.check_signer(&signer, index);
        }
        match index {
            0 => Ok(()),
            _ => Err(format!(
                "the key {kid} introduces itself at index {index} of the log; only the first entry may do so"
            )),
        }
    }

    fn check_revocation(
        &self,
        jwk: &Jwk,
        index: u64,
        revocation: &LoggedChange,
    ) -> Result<(), String> {
        let (signer, logged) =
            self.check_change(jwk, KeyAction::Revoked, revocation, Some(index))?;
        if logged != index {
            return Err(format!(
                "the revocation of the key {} is at index {logged} of the log, not at {index}",
                jwk.kid
            ));
        }
        if signer == jwk.kid {
            return Err(format!("the key {} revokes itself", jwk.kid));
        }
        self.check_signer(&signer, index)
    }

    /// Checks that a key in the chain was valid when it signed the change at this index.
    fn check_signer(&self, kid: &str, index: u64) -> Result<(), String> {
        let (signer, _) = self.keys.find(kid)?;
        if signer
            .revoked_at_index
            .is_some_and(|revoked| revoked <= index)
        {
            return Err(format!(
                "the key {kid} signed the change at index {index} after its revocation"
            ));
        }
        self.check_introduction(kid, Some(index))
    }

    /// Checks a change's signed statement, and that the log has it. Returns the key that signed it,
    /// and its index.
    fn check_change(
        &self,
        jwk: &Jwk,
        action: KeyAction,
        change: &LoggedChange,
        revoked_at_index: Option<u64>,
    ) -> Result<(String, u64), String> {
        let kid = &jwk.kid;
        let jws = Jws::parse(&change.jws)?;
        let (_, signer) = self.keys.find(&jws.kid)?;
        if !jws.is_by(&signer) {
            return Err(format!(
                "the key {} did not sign the change of the key {kid}",
                jws.kid
            ));
        }
        let statement: Statement<KeyChange> = serde_json::from_slice(&jws.payload)
            .map_err(|error| format!("the change of the key {kid} is invalid: {error}"))?;
        let claim = &statement.predicate;
        let x = URL_SAFE_NO_PAD.decode(&jwk.x).unwrap_or_default();
        let is_about_key = statement.r#type == STATEMENT_TYPE
            && statement.predicate_type == KEY
            && statement.subject[0].name == "receipt-key"
            && statement.subject[0].digest.sha256 == hex::encode(Sha256::digest(x))
            && (claim.action, &claim.kid, &claim.x) == (action, kid, &jwk.x)
            && claim.revoked_at_index == revoked_at_index;
        if !is_about_key {
            return Err(format!("the signed change is not that of the key {kid}"));
        }
        let logged = Logged::read(&change.log, &change.jws)?;
        logged.check_checkpoint(&change.log, self.log_key)?;
        Ok((jws.kid, logged.index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jws::{ReceiptKey, log_entry};
    use crate::log::{LogKeys, Proof, new_key};
    use crate::place::LogPlace;
    use crate::tree::{Found, GrowingTree, KnownTiles};

    const ORIGIN: &str = "log.example";

    fn key(number: u8) -> ReceiptKey {
        ReceiptKey::from_secret(&[number; 32])
    }

    fn change(signer: u8, of: u8, action: KeyAction, revoked_at_index: Option<u64>) -> String {
        let public_key = key(of).public_key();
        let claim = KeyChange {
            action,
            kid: key(of).kid().to_owned(),
            x: URL_SAFE_NO_PAD.encode(public_key),
            at: "2026-01-01T00:00:00.000000Z".into(),
            revoked_at_index,
        };
        let digest = hex::encode(Sha256::digest(public_key));
        let statement = Statement::new(KEY, "receipt-key", digest, claim);
        key(signer)
            .sign(&serde_json::to_vec(&statement).unwrap())
            .jws
    }

    fn added(signer: u8, of: u8) -> String {
        change(signer, of, KeyAction::Added, None)
    }

    /// A log with these changes, and its verifier key.
    struct Log {
        changes: Vec<LoggedChange>,
        key: String,
    }

    impl Log {
        fn new(statements: &[String]) -> Self {
            let mut tree = GrowingTree::default();
            for jws in statements {
                tree.push(&log_entry(jws)).unwrap();
            }
            let (secret, log_key) = new_key(ORIGIN, &[7; 32]).unwrap();
            let root = tree.root().unwrap();
            let checkpoint = LogKeys::parse(&secret, ORIGIN)
                .unwrap()
                .sign(ORIGIN, tree.size(), root)
                .unwrap();
            let mut tiles = KnownTiles::default();
            for file in tree.files_since(0).unwrap() {
                tiles.add(file.path, file.bytes);
            }
            let place = |index: u64, jws: &str| {
                let found = tiles.prove(tree.size(), root, index, &log_entry(jws));
                let Ok(Found::Complete(path)) = found else {
                    panic!("no proof")
                };
                let checkpoint = checkpoint.clone();
                let proof = Proof {
                    index,
                    path,
                    checkpoint,
                };
                LogPlace {
                    origin: ORIGIN.into(),
                    index,
                    proof: proof.to_text(),
                }
            };
            let changes = (0..).zip(statements).map(|(index, jws)| LoggedChange {
                jws: jws.clone(),
                log: place(index, jws),
            });
            Self {
                changes: changes.collect(),
                key: log_key,
            }
        }

        /// Returns the keys that the changes at these indexes introduce and revoke.
        fn keys(&self, keys: &[(u8, usize, Option<usize>)]) -> JwkSet {
            let jwk = |&(number, added, revoked): &(u8, usize, Option<usize>)| {
                let from = "2026-01-01T00:00:00.000000Z".into();
                let index = revoked.map(|index| index as u64);
                let mut jwk = Jwk::new(&key(number).public_key(), from, None, index);
                jwk.introduction = Some(self.changes[added].clone());
                jwk.revocation = revoked.map(|revoked| self.changes[revoked].clone());
                jwk
            };
            JwkSet {
                keys: keys.iter().map(jwk).collect(),
            }
        }

        fn check(&self, keys: &JwkSet, number: u8) -> String {
            check(keys, key(number).kid(), &self.key)
                .err()
                .unwrap_or_default()
        }
    }

    fn log() -> Log {
        Log::new(&[
            added(1, 1),
            added(1, 2),
            added(2, 3),
            change(3, 2, KeyAction::Revoked, Some(3)),
            // From here on, what a stranger could add who has no key in the chain, or a revoked one.
            added(9, 9),
            added(9, 8),
            added(2, 7),
            change(9, 3, KeyAction::Revoked, Some(7)),
            change(3, 3, KeyAction::Revoked, Some(8)),
            change(3, 1, KeyAction::Revoked, Some(10)),
        ])
    }

    #[test]
    fn later_keys_follow_from_the_first_entry() {
        let log = log();
        let keys = log.keys(&[(1, 0, None), (2, 1, Some(3)), (3, 2, None)]);
        for number in [1, 2, 3] {
            assert_eq!(log.check(&keys, number), "");
        }
    }

    #[test]
    fn keys_outside_of_the_chain_are_rejected() {
        let log = log();
        let chain = [(1, 0, None), (2, 1, Some(3)), (3, 2, None)];
        for (more, number, reason) in [
            ((9, 4, None), 9, "introduces itself at index 4"),
            ((8, 5, None), 8, "do not contain"),
            ((7, 6, None), 7, "after its revocation"),
            ((8, 1, None), 8, "not that of the key"),
        ] {
            let keys = log.keys(&[&chain[..], &[more]].concat());
            assert!(
                log.check(&keys, number).contains(reason),
                "{}",
                log.check(&keys, number)
            );
            assert_eq!(log.check(&keys, 3), "", "the others stay valid");
        }
        let without_first = log.keys(&chain[1..]);
        assert!(log.check(&without_first, 3).contains("do not contain"));
        let mut not_introduced = log.keys(&chain);
        not_introduced.keys[1].introduction = None;
        assert!(log.check(&not_introduced, 3).contains("nothing introduces"));
        let other = Log {
            key: new_key(ORIGIN, &[6; 32]).unwrap().1,
            ..self::log()
        };
        assert_ne!(other.check(&log.keys(&chain), 3), "", "another log");
    }

    #[test]
    fn only_another_key_of_the_chain_revokes() {
        let log = log();
        for (revoked, reason) in [
            (7, "do not contain"),
            (8, "revokes itself"),
            (3, "not that of the key"),
        ] {
            let keys = log.keys(&[(1, 0, None), (2, 1, None), (3, 2, Some(revoked))]);
            let found = log.check(&keys, 3);
            assert!(found.contains(reason), "{found}");
        }
        // The statement names another index than its own.
        let keys = log.keys(&[(1, 0, Some(9)), (2, 1, None), (3, 2, None)]);
        assert_ne!(log.check(&keys, 1), "");
        let mut unsigned = log.keys(&[(1, 0, None), (2, 1, Some(3)), (3, 2, None)]);
        unsigned.keys[1].revocation = None;
        assert!(log.check(&unsigned, 2).contains("is not signed"));
    }
}

//! The signatures of statements, the receipt keys, and the indexes of the log in PostgreSQL.

use std::collections::HashSet;

use assay_core::store::receipt_log::{
    self, BATCH, NewKey, SignedStatement, Source, StoredKey, Unsigned, append,
};
use assay_core::store::{self, Connection as _, PgConnection};
use assay_core::{Error, Result, Timestamp};
use assay_receipts::jws::{ReceiptKey, Signed, log_entry};
use assay_receipts::statement::{
    EVAL_RESULT, EvalResult, KEY, KeyAction, KeyChange, STATEMENT_TYPE, SUITE, Statement,
    SuitePublication,
};
use assay_receipts::tree::Entry;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

/// The time before its registration from which a key is valid: a statement may be written before
/// the key is registered, and committed afterwards.
const KEY_MARGIN_MICROS: i64 = 10 * 60 * 1_000_000;

/// The receipt keys of this process. The first one signs; the others may sign what was written while
/// they were the first.
#[derive(Clone)]
pub struct ReceiptKeys(Vec<ReceiptKey>);

impl ReceiptKeys {
    /// Reads private keys: 32 bytes each in base64, separated by commas.
    ///
    /// # Errors
    /// If a key is malformed. The message does not repeat it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read = |key: &str| {
            let secret = base64::engine::general_purpose::STANDARD.decode(key.trim());
            let secret = secret.ok().and_then(|bytes| bytes.try_into().ok());
            secret
                .map(|secret| ReceiptKey::from_secret(&secret))
                .ok_or_else(|| {
                    String::from(
                        "must be keys such as `assay-api receipt-key generate` prints, separated by commas",
                    )
                })
        };
        text.split(',')
            .map(read)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns `true` if a key has signed this compact statement.
    pub fn have_signed(&self, jws: &str) -> bool {
        self.0.iter().any(|key| key.has_signed(jws))
    }

    fn find(&self, kid: &str) -> Option<&ReceiptKey> {
        self.0.iter().find(|key| key.kid() == kid)
    }

    /// Returns a registered key that signs changes of keys.
    fn signer_of_changes(&self, stored: &[StoredKey]) -> Option<&ReceiptKey> {
        let valid = stored.iter().filter(|stored| stored.is_valid());
        valid
            .map(|stored| stored.kid.as_str())
            .find_map(|kid| self.find(kid))
    }
}

/// The registered keys with which this process can sign.
pub struct Signers<'a> {
    keys: &'a ReceiptKeys,
    stored: Vec<StoredKey>,
    /// The entries that were appended since [`Signers::take_appended`].
    appended: HashSet<Entry>,
    /// The rows that were reported because they are not signed.
    reported: HashSet<String>,
}

impl<'a> Signers<'a> {
    /// Registers the keys that the database does not have, makes the first one the one that signs,
    /// and returns them.
    pub async fn register(db: &mut PgConnection, keys: &'a ReceiptKeys) -> Result<Self> {
        let stored = receipt_log::keys(&mut *db).await?;
        let mut appended = HashSet::new();
        for key in &keys.0 {
            if stored.iter().any(|stored| stored.kid == key.kid()) {
                continue;
            }
            // The first key of all signs itself.
            let signer = keys.signer_of_changes(&stored).unwrap_or(key);
            let (oldest, now) = receipt_log::oldest_unsigned(&mut *db).await?;
            let jws = sign_change(signer, key, KeyAction::Added, now, None)?;
            let new = NewKey {
                kid: key.kid(),
                public_key: &key.public_key(),
                valid_from: oldest
                    .map_or(now, |oldest| oldest.min(now))
                    .plus_micros(-KEY_MARGIN_MICROS),
                entry: &log_entry(&jws),
                jws: &jws,
            };
            receipt_log::insert_key(db, &new).await?;
            appended.insert(*new.entry);
            tracing::info!(kid = key.kid(), "receipt key added");
        }
        if let Some(first) = keys.0.first() {
            receipt_log::set_signing_key(&mut *db, first.kid()).await?;
        }
        let stored = receipt_log::keys(&mut *db).await?;
        Ok(Self {
            keys,
            stored,
            appended,
            reported: HashSet::new(),
        })
    }

    /// Returns the entries that were appended since the last call.
    pub fn take_appended(&mut self) -> HashSet<Entry> {
        std::mem::take(&mut self.appended)
    }

    /// Returns the key that signs a statement of this time: the first one that is valid then.
    fn at(&self, at: Timestamp) -> Option<&'a ReceiptKey> {
        let is_valid = |kid: &str| {
            self.stored.iter().any(|stored| {
                stored.kid == kid
                    && stored.is_valid()
                    && stored.valid_from <= at
                    && stored.valid_until.is_none_or(|until| at < until)
            })
        };
        self.keys.0.iter().find(|key| is_valid(key.kid()))
    }

    /// Signs the statements that are not signed, and appends them to the log: those of suites before
    /// those of receipts.
    pub async fn sign_pending(&mut self, db: &mut PgConnection) -> Result<()> {
        for source in [Source::Suites, Source::Receipts] {
            loop {
                let unsigned = receipt_log::unsigned(db, source).await?;
                let is_last = unsigned.len() < BATCH;
                let mut signed = Vec::with_capacity(unsigned.len());
                for statement in unsigned {
                    if !is_about_row(source, &statement) {
                        if self.reported.insert(statement.id.clone()) {
                            tracing::error!(
                                id = statement.id,
                                "not signed: the row has a statement that is not about it, so somebody has written to the database"
                            );
                        }
                        continue;
                    }
                    let key = self.at(statement.issued_at).ok_or_else(|| {
                        Error::internal("no receipt key of this process is valid for a statement")
                    })?;
                    let Signed { signature, jws } = key.sign(&statement.payload);
                    signed.push(SignedStatement {
                        id: statement.id,
                        version: statement.version,
                        kid: key.kid().to_owned(),
                        signature,
                        entry: log_entry(&jws),
                    });
                }
                if !signed.is_empty() {
                    receipt_log::append_statements(db, source, &signed).await?;
                    self.appended
                        .extend(signed.iter().map(|signed| signed.entry));
                }
                if is_last || signed.is_empty() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Revokes the keys that the operator wants to be revoked. They sign nothing afterwards.
    pub async fn revoke_requested(&mut self, db: &mut PgConnection) -> Result<()> {
        self.stored = receipt_log::keys(&mut *db).await?;
        let mut appended = Vec::new();
        for revoked in self.stored.iter().filter(|key| key.must_be_revoked) {
            let signer = self.keys.signer_of_changes(&self.stored);
            let Some((signer, key)) = signer.zip(self.keys.find(&revoked.kid)) else {
                tracing::error!(
                    kid = revoked.kid,
                    "a receipt key cannot be revoked: ASSAY_RECEIPT_KEYS must have it and another valid key"
                );
                continue;
            };
            let mut transaction = db.begin().await?;
            let index = receipt_log::size(&mut *transaction).await?;
            let now = store::now(&mut *transaction).await?;
            let at_index = u64::try_from(index).map_err(Error::internal)?;
            let jws = sign_change(signer, key, KeyAction::Revoked, now, Some(at_index))?;
            let entry = log_entry(&jws);
            append(&mut transaction, &[entry]).await?;
            receipt_log::revoke_key(&mut *transaction, &revoked.kid, index, &jws).await?;
            transaction.commit().await?;
            appended.push(entry);
            tracing::warn!(kid = revoked.kid, index, "receipt key revoked");
        }
        self.appended.extend(appended);
        Ok(())
    }
}

/// Returns `true` if a row has the statement of its table about itself. Other roles insert the rows: without
/// this check, one of them could have the log sign a statement of another kind, such as one that
/// introduces a key.
fn is_about_row(source: Source, row: &Unsigned) -> bool {
    fn claim<P: DeserializeOwned>(
        payload: &[u8],
        predicate_type: &str,
        subject: &str,
    ) -> Option<P> {
        let statement: Statement<P> = serde_json::from_slice(payload).ok()?;
        let is_expected = statement.r#type == STATEMENT_TYPE
            && statement.predicate_type == predicate_type
            && statement.subject[0].name == subject;
        is_expected.then_some(statement.predicate)
    }
    match source {
        Source::Receipts => claim::<EvalResult>(&row.payload, EVAL_RESULT, "predictions")
            .is_some_and(|claim| claim.receipt_id == row.id),
        Source::Suites => {
            claim::<SuitePublication>(&row.payload, SUITE, "suite").is_some_and(|claim| {
                (&claim.suite_id, &claim.suite_version) == (&row.id, &row.version)
            })
        }
    }
}

/// Signs the statement about a change of a key.
fn sign_change(
    signer: &ReceiptKey,
    key: &ReceiptKey,
    action: KeyAction,
    at: Timestamp,
    revoked_at_index: Option<u64>,
) -> Result<String> {
    let change = KeyChange {
        action,
        kid: key.kid().to_owned(),
        x: URL_SAFE_NO_PAD.encode(key.public_key()),
        at: at.to_string(),
        revoked_at_index,
    };
    let digest = hex::encode(Sha256::digest(key.public_key()));
    let statement = Statement::new(KEY, "receipt-key", digest, change);
    let payload = serde_json::to_vec(&statement).map_err(Error::internal)?;
    Ok(signer.sign(&payload).jws)
}

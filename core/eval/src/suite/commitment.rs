//! A suite's commitment: a salted hash over its items and answers, over the seed that draws its
//! sealed items, and over its retest. Published with the suite, it makes a later answer change detectable, and
//! discloses nothing before the salt is published.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The seed for a suite that draws its sealed items.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealSeed([u8; 32]);

impl SealSeed {
    /// Returns the seed for `seal_seed` in `suite.toml`: the text's SHA-256.
    pub fn from_text(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// Creates a seed from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the seed's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the sealed items' indexes: the `n_sealed` items with the smallest HMAC-SHA-256 for
    /// their ids under the seed.
    pub fn draw<'a>(
        &self,
        item_ids: impl IntoIterator<Item = &'a str>,
        n_sealed: usize,
    ) -> Vec<usize> {
        let mut order: Vec<([u8; 32], usize)> = item_ids
            .into_iter()
            .enumerate()
            .map(|(at, item_id)| (self.place(item_id), at))
            .collect();
        order.sort_unstable();
        order.truncate(n_sealed);
        order.into_iter().map(|(_, at)| at).collect()
    }

    /// Returns for each item whether it is sealed, if whole clusters are sealed: those whose `values`
    /// have the smallest HMAC-SHA-256 under the seed, until they contain at least `n_sealed` items. `item_clusters` has each item's index in `values`.
    pub fn draw_clusters(
        &self,
        values: &[String],
        item_clusters: &[u32],
        n_sealed: usize,
    ) -> Vec<bool> {
        let mut sizes = vec![0; values.len()];
        item_clusters
            .iter()
            .for_each(|cluster| sizes[*cluster as usize] += 1);
        let mut is_sealed = vec![false; values.len()];
        let mut n = 0;
        for cluster in self.draw(values.iter().map(String::as_str), values.len()) {
            if n >= n_sealed {
                break;
            }
            is_sealed[cluster] = true;
            n += sizes[cluster];
        }
        item_clusters
            .iter()
            .map(|cluster| is_sealed[*cluster as usize])
            .collect()
    }

    fn place(&self, item_id: &str) -> [u8; 32] {
        // A 32-byte key has a valid length for every hash function.
        Hmac::<Sha256>::new_from_slice(&self.0)
            .map(|mac| mac.chain_update(item_id).finalize().into_bytes().into())
            .unwrap_or_default()
    }
}

/// Returns the `seal_seed` of a suite that names none: the lower-case hex digits of
/// HMAC-SHA-256(opening key, `assay seal seed v1`). So the opening key alone proves and opens a version.
pub fn derived_seal_seed(opening_key: &[u8; 32]) -> String {
    // A 32-byte key has a valid length for every hash function.
    let seed: [u8; 32] = Hmac::<Sha256>::new_from_slice(opening_key)
        .map(|mac| {
            mac.chain_update("assay seal seed v1")
                .finalize()
                .into_bytes()
                .into()
        })
        .unwrap_or_default();
    seed.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 over the lines in `items.ndjson`, `answers.ndjson` or `retest.ndjson` as they are
/// published.
#[derive(Default)]
pub struct LinesDigest {
    hash: Sha256,
    line: Vec<u8>,
}

#[derive(Serialize)]
struct ItemId<'a> {
    item_id: &'a str,
}

impl LinesDigest {
    /// Adds an item's line: `field` is `input`, `answer` or `answers`, `json` its value, and `groups` the
    /// object of its group fields, if it has any.
    pub fn add(&mut self, item_id: &str, field: &str, json: &str, groups: Option<&str>) {
        self.line.clear();
        write_line(item_id, field, json, groups, &mut self.line);
        self.hash.update(&self.line);
    }

    /// Adds the line of an item's answer, see [`write_answer_line`].
    pub fn add_answer(
        &mut self,
        item_id: &str,
        answer: &str,
        n: Option<u32>,
        groups: Option<&str>,
    ) {
        self.line.clear();
        write_answer_line(item_id, answer, n, groups, &mut self.line);
        self.hash.update(&self.line);
    }

    /// Returns the digest over all lines.
    pub fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

/// Appends an item's line in `items.ndjson` (`field` is `input`), `answers.ndjson` (`answer`) or
/// `retest.ndjson` (`answers`) as it is published: `{"item_id":…,"input":…}` and a line feed, with `"groups":…` at the end if the
/// line has group fields. `json` is the value byte for byte, `groups` the object in the form of RFC
/// 8785.
pub fn write_line(item_id: &str, field: &str, json: &str, groups: Option<&str>, out: &mut Vec<u8>) {
    write_fields(item_id, (field, json), None, groups, out);
}

/// Appends the line of an item's answer in `answers.ndjson` as it is published: that of [`write_line`],
/// with `"n":…` in front of the group fields if the number of people behind the answer is given.
pub fn write_answer_line(
    item_id: &str,
    answer: &str,
    n: Option<u32>,
    groups: Option<&str>,
    out: &mut Vec<u8>,
) {
    write_fields(item_id, ("answer", answer), n, groups, out);
}

fn write_fields(
    item_id: &str,
    (field, json): (&str, &str),
    n: Option<u32>,
    groups: Option<&str>,
    out: &mut Vec<u8>,
) {
    // Writing a string to a vector cannot fail.
    let _ = serde_json::to_writer(&mut *out, &ItemId { item_id });
    out.pop();
    out.extend_from_slice(b",\"");
    out.extend_from_slice(field.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(json.as_bytes());
    if let Some(n) = n {
        out.extend_from_slice(format!(",\"n\":{n}").as_bytes());
    }
    if let Some(groups) = groups {
        out.extend_from_slice(b",\"groups\":");
        out.extend_from_slice(groups.as_bytes());
    }
    out.extend_from_slice(b"}\n");
}

/// Everything that a commitment hides until the suite is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// 32 random bytes.
    pub salt: [u8; 32],
    /// The published `items.ndjson`'s SHA-256.
    pub items_sha256: [u8; 32],
    /// The published `answers.ndjson`'s SHA-256.
    pub answers_sha256: [u8; 32],
    /// The seed of the sealed items. `None` without sealed items.
    pub seed: Option<SealSeed>,
    /// The published `retest.ndjson`'s SHA-256. `None` without a retest.
    pub retest_sha256: Option<[u8; 32]>,
}

impl Opening {
    /// Returns the commitment: SHA-256(salt ‖ SHA-256(items) ‖ SHA-256(answers) ‖ seed ‖
    /// SHA-256(retest)). Without sealed items, 32 zero bytes take the seed's place if there is a retest,
    /// so that no retest can be taken for a seed. Without a retest, nothing does.
    pub fn commitment(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.salt);
        hash.update(self.items_sha256);
        hash.update(self.answers_sha256);
        match (&self.seed, self.retest_sha256) {
            (Some(seed), _) => hash.update(seed.as_bytes()),
            (None, Some(_)) => hash.update([0; 32]),
            (None, None) => {}
        }
        if let Some(retest) = self.retest_sha256 {
            hash.update(retest);
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by Python: `hmac.new(hashlib.sha256(b"s").digest(), id, "sha256").hexdigest()`.
    #[test]
    fn draw_takes_the_smallest_hashes() {
        let seed = SealSeed::from_text("s");
        let hex = |bytes: [u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(hex(seed.place("a")), HASH_OF_A);
        let ids = ["a", "b", "c", "d", "e"];
        let mut by_hash = ids.map(|id| (hex(seed.place(id)), id));
        by_hash.sort();
        let drawn = seed.draw(ids, 2);
        assert_eq!(drawn.len(), 2);
        assert_eq!([ids[drawn[0]], ids[drawn[1]]], [by_hash[0].1, by_hash[1].1]);
    }

    /// Computed by Python: `hmac.new(bytes(range(32)), b"assay seal seed v1", "sha256").hexdigest()`.
    #[test]
    fn seal_seed_is_derived_from_opening_key() {
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        assert_eq!(
            derived_seal_seed(&key),
            "c3461d4c9fd36059ddcbf29f6ab690d9364105607e0d45da7874384775f94d91"
        );
    }

    const HASH_OF_A: &str = "389bd5de0be7c95b19dd2b8518055447d53189af4c3718118078f5e6f8745b8c";

    #[test]
    fn commitment_hashes_salt_files_and_seed() {
        let mut line = Vec::new();
        write_line("ä\"", "input", "{\"x\" :1}", None, &mut line);
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "{\"item_id\":\"ä\\\"\",\"input\":{\"x\" :1}}\n"
        );
        let opening = Opening {
            salt: [1; 32],
            items_sha256: [2; 32],
            answers_sha256: [3; 32],
            seed: None,
            retest_sha256: None,
        };
        let expected: [u8; 32] = Sha256::digest([[1; 32], [2; 32], [3; 32]].concat()).into();
        assert_eq!(opening.commitment(), expected);
        let sealed = Opening {
            seed: Some(SealSeed::from_bytes([4; 32])),
            ..opening
        };
        let expected: [u8; 32] =
            Sha256::digest([[1; 32], [2; 32], [3; 32], [4; 32]].concat()).into();
        assert_eq!(sealed.commitment(), expected);
        // A retest comes after the seed, or after zero bytes.
        for (before, seed) in [(sealed, [4; 32]), (opening, [0; 32])] {
            let retested = Opening {
                retest_sha256: Some([5; 32]),
                ..before
            };
            let expected: [u8; 32] =
                Sha256::digest([[1; 32], [2; 32], [3; 32], seed, [5; 32]].concat()).into();
            assert_eq!(retested.commitment(), expected);
        }
    }
}

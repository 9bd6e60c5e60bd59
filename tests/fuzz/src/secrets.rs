//! API keys, session tokens, link tokens and device codes.

use assay_core::model::secret::{SecretKind, read};
use sha2::{Digest as _, Sha256};

use super::Seeded;

const KINDS: [(SecretKind, &str); 4] = [
    (SecretKind::ApiKey, "svc_live_"),
    (SecretKind::Session, "svc_sess_"),
    (SecretKind::Link, "svc_link_"),
    (SecretKind::Device, "svc_devc_"),
];
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Exactly the strings with the right form and checksum are secrets, and the hash covers the whole
/// string.
pub fn secrets(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let found = read(text);
        assert_eq!(found.map(|(kind, _)| kind), expected(text));
        if let Some((_, hash)) = found {
            assert_eq!(hash.as_bytes(), Sha256::digest(text).as_slice());
        }
    }
    // A secret made from the input, and the same with one character changed.
    let mut seeded = Seeded::of(data);
    let (kind, prefix) = KINDS[seeded.below(KINDS.len())];
    let random: String = (0..32)
        .map(|at| char::from(BASE62[usize::from(data.get(at).copied().unwrap_or(0)) % 62]))
        .collect();
    let body = format!("{prefix}{random}");
    let mut secret = body.clone() + &checksum(&body);
    assert_eq!(read(&secret).map(|(kind, _)| kind), Some(kind));
    let at = seeded.below(secret.len());
    let other = char::from(BASE62[seeded.below(62)]).to_string();
    if secret[at..=at] != other {
        secret.replace_range(at..=at, &other);
        assert!(read(&secret).is_none(), "{secret}");
    }
}

fn expected(text: &str) -> Option<SecretKind> {
    let (kind, prefix) = KINDS
        .into_iter()
        .find(|(_, prefix)| text.starts_with(prefix))?;
    let rest = &text[prefix.len()..];
    let well_formed = rest.len() == 38 && rest.bytes().all(|byte| BASE62.contains(&byte));
    (well_formed && text.ends_with(&checksum(&text[..text.len() - 6]))).then_some(kind)
}

/// Returns the IEEE 802.3 CRC-32, computed bit by bit, as six digits.
fn checksum(text: &str) -> String {
    let mut crc = u32::MAX;
    for byte in text.bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    let mut rest = u64::from(!crc);
    let mut digits = Vec::new();
    for _ in 0..6 {
        digits.push(char::from(BASE62[(rest % 62) as usize]));
        rest /= 62;
    }
    digits.iter().rev().collect()
}
